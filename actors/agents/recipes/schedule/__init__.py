"""Which nodes run together, over which loops, with which knobs."""
