"""Lines of C++ or CUDA, indented by their braces."""

from __future__ import annotations


class SourceLines:
    """Text that grows, with indentation."""

    def __init__(self, depth: int = 0) -> None:
        self.text: list[str] = []
        self.depth = depth

    def add(self, *lines: str) -> None:
        for line in lines:
            if line.startswith("}"):
                self.depth -= 1
            self.text.append(line if line.startswith("#") else "  " * self.depth + line)
            if line.endswith("{"):
                self.depth += 1
