"""Tables of embeddings: one form inside, and files at the edge."""
