"""Evaluators from a fleet: batch jobs and ssh, kept at their number."""
