"""From groups of modules to proven tasks: the stage, recorded calls, the record take.json."""
