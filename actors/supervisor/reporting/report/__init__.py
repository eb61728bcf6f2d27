"""report.html: its tables, its chart, and the page inside it."""
