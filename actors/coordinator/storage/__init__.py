"""`run.db`: the database file, and the reads and writes of its tables."""
