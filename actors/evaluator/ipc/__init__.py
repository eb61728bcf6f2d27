"""Messages between the judge and its children, and the layouts of values that cross."""
