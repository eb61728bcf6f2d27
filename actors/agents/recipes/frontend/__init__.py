"""From a task's source to the operation graph."""
