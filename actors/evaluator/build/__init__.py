"""The build stage: in turn with measurements, ahead of them, and its toolkit."""
