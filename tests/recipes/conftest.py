"""The bench is there for every test of this room."""

from recipe_bench import bench

__all__ = ["bench"]
