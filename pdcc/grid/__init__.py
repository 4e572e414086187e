"""Grids of cells: each is a pure function of its setting, run once, and on record as soon as it is done."""
