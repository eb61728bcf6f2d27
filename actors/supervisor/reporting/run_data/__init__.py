"""Reading a run: `run.db` and the run folder as values, and the results that follow from them."""
