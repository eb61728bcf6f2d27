"""Tools in addition to the command: reports, benchmarks, checks."""
