"""A model's reply: its sections, anchors, scaffolds and candidates."""
