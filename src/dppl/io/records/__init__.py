"""Raw records: texts and images in files, sheets and databases, one after the other."""
