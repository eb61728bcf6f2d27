"""The web server of `scripts/watch.py`: the page of one run or several, and its data."""
