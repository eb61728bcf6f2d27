"""What a model answered: sections, anchors, scaffolds, candidates."""
