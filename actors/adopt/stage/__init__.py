"""What every stage needs: the shared folder, the time, child processes, errors for the user."""
