"""Inspects a winner with NVIDIA's tools."""
