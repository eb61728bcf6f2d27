"""The fitted model against the original: results, error, time, and which winners stay."""
