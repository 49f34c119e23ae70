"""Clusters: which particles belong together, how clusters merge, and how long they last."""
