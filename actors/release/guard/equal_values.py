"""When two attributes are equal: for the guard of winners, and as a file in `stark_fitted`."""

# mypy: ignore-errors
from __future__ import annotations

import torch as _torch

# --- copied from here on ---

_EXACT = (int, float, complex, str, bytes, bool, type(None), _torch.dtype, _torch.device)


def _is_equal(found, value):
    """Whether two values of plain parts are equal: torch.export leaves copies in a module."""
    if found is value:
        return True
    if type(found) is not type(value):
        return False
    if type(value) in (list, tuple, dict):
        if len(found) != len(value):
            return False
        if type(value) is dict:
            found, value = [*found.items()], [*value.items()]
        return all(map(_is_equal, found, value))
    return type(value) in _EXACT and found == value
