"""A run while it goes on: plain lines, the live view, Prometheus text."""
