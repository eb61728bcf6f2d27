"""Labels of a candidate, derived from its source: heuristics for readers, never a verdict."""
