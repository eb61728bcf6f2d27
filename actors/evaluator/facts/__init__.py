"""What is known of a task and of a candidate besides the verdict; it decides nothing."""
