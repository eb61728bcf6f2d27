"""The user's model as it is used: its file, its calls, what they change, what a step gives."""
