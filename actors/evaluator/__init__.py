"""The evaluator: it builds, checks and times candidates, and no candidate can disturb it."""
