"""Tools beside the command: reports, benchmarks, checks."""
