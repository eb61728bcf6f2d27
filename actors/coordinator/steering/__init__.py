"""Steering: what a person asks of the run, taken from the spool and applied once."""
