"""Labels read off a candidate's text: heuristics for readers, never a verdict."""
