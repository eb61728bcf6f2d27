"""Comparisons of settings on any tasks over several seeds: `scripts/compare.py`."""
