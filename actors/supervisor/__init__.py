"""The supervisor: the user's command, the process tree, restarts, the live view and the outcome."""
