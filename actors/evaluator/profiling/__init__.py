"""A winner under NVIDIA's tools."""
