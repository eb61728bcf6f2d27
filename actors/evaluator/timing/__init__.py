"""Reference and candidate in turn, by the judge's own clock."""
