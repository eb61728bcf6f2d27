"""Every test of this room may use the bench."""

from recipe_runner import bench

__all__ = ["bench"]
