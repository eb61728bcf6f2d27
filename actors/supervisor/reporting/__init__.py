"""What people are shown of a run: terminal, report, figures, results."""
