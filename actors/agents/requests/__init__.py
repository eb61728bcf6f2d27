"""A request to a model, and how the prompts fill it."""
