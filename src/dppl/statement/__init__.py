"""What a model promises, told to people: in words, and on cards and pages."""
