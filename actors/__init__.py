"""One folder a process; `actor.py` is the loop of every worker."""
