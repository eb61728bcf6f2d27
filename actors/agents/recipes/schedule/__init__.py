"""Fusion of nodes into regions, the loop nest of a region, and the knobs."""
