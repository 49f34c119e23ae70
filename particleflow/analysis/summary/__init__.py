"""Everything at once: the numbers of a run as one table."""
