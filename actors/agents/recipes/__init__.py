"""recipes: the embedded default model.  It is a rule book, not a language model.

`answer(work)` gives a reply in the format that a language model's has, as a pure function of the
work: the task's source, what the window shows, the seed.  It reads the source as syntax (no torch,
nothing is run), recognises what it has rules for, and writes whole C++ or CUDA candidates; what it
does not know stays in PyTorch, and when nothing is left it says so (`## Cannot`).
"""

from actors.agents.recipes.answering import answer

__all__ = ["answer"]
