"""The light headers of torch: generated, selected for a candidate, precompiled, in a toolkit."""
