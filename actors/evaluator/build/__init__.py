"""The build stage: in turn, ahead of its turn, and the toolkit for it."""
