"""Where a model's time is: time by module, equal modules as groups, the choice of groups."""
