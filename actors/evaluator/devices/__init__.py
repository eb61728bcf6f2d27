"""The device of a judge: its identity, its health, its sensors and its peak performance."""
