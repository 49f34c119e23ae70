"""Exact sums: the whole matrix at once, block after block, or through a few features."""
