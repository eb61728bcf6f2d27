"""What a model is asked: the request and the prompts that fill it."""
