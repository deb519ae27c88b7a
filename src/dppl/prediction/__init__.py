"""Rows become labels, probabilities, similarities and reasons: for `predict`, `evaluate` and the service."""
