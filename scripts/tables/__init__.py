"""KernelBench tables: choose problems, start runs, compute figures, print tables."""
