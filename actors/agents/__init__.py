"""Planner, coder and debugger: the processes that ask a model and check what it answers."""
