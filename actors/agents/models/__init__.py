"""The models: Claude or a compatible server, a script, a stored run, the rule book."""
