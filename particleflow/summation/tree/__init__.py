"""Sums of slowly decaying kernels by a tree of cells: near pairs one by one, far cells through polynomials."""
