"""The task's own module: its referee, its runner, the fixture that keeps both warm."""
