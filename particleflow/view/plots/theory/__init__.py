"""Figures of what is computed beside runs: growth rates, branches, eigenvalues, fits, and depth of a transformer."""
