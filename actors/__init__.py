"""One folder per process; `actor.py` is the loop that all of them run."""
