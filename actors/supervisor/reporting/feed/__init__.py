"""The change feed of a run, which the page and the report show."""
