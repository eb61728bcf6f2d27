"""A module's computation as a task: exported graph, PyTorch text, inputs, cases, and the proof."""
