"""The bench is there for every test of this room."""

from recipe_runner import bench

__all__ = ["bench"]
