"""A stored run followed, rebuilt and verified."""
