"""`run.db`: the single writer's tables and the reads of them."""
