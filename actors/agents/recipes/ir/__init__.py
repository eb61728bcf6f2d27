"""The operation graph and what torch's functions mean in it."""
