"""A winner in a child, used as its users will use it, and compared with the plain module."""
