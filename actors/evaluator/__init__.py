"""The evaluator: builds, checks and times candidates; none of them can hurt it."""
