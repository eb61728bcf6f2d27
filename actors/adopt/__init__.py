"""From a user's own model to tasks, and from winners back into the model."""
