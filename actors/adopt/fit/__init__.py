"""The winners of the tasks, and the package that puts them into the model."""
