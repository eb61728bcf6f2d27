"""Tools beside the command: report, doctor and friends."""
