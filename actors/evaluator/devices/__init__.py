"""The device under a judge: which one it is, whether it is well, what it could do at most."""
