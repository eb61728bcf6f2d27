"""The models that answer: Claude or a compatible server, a script, the recipes' rule book."""
