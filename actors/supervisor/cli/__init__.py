"""The command line, and all that is checked before anything starts."""
