"""Stored runs: their choices taken over by a replay, their decisions rebuilt and verified."""
