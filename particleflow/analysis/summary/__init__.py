"""The summary: all numbers of a run as one table."""
