"""Comparisons: grids over method, data set, public pool, budget, imbalance and seed; results; figures."""
