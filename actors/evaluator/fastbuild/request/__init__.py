"""What is to be built: sources, flags, torch's own commands, and the process that runs one."""
