"""KernelBench tables: problems chosen, runs started, figures counted and shown."""
