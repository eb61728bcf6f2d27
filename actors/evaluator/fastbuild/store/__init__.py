"""What lasts between builds on one machine: folders, results, records and build slots; no torch."""
