"""Attention matrices: rank, entropy, leaders, and how few features are enough."""
