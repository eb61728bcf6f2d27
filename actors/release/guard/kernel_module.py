"""The candidate's source, imported as a module of its own."""

# mypy: ignore-errors
from __future__ import annotations

import contextlib as _contextlib
import linecache as _linecache
import os as _os
import sys as _sys
import types as _types

import torch as _torch

from actors.release.guard.judged_values import _DEVICE

_KERNELS: str = ""

# --- copied from here on ---


@_contextlib.contextmanager
def _own_architecture():
    """Have torch compile for this card with its own features, as it was compiled to be judged."""
    key = "TORCH_CUDA_ARCH_LIST"
    wanted = _DEVICE == "cuda" and "cpp_extension" in _KERNELS and key not in _os.environ
    if wanted and _torch.cuda.is_available():
        major, minor = _torch.cuda.get_device_capability()
        # From Hopper on, "a" permits instructions of this architecture alone, such as wgmma.
        _os.environ[key] = f"{major}.{minor}{'a' if major >= 9 else ''}"
    else:
        wanted = False
    try:
        yield
    finally:
        if wanted:
            _os.environ.pop(key, None)


def _load_kernels():
    """Import the candidate's source as a module; return it, or None and the reason."""
    name = f"{__name__}_kernels"
    file = f"<{name}>"  # inspect, Triton and tracebacks find the lines in linecache
    module = _types.ModuleType(name)
    module.__file__ = globals().get("__file__", file)
    _linecache.cache[file] = (len(_KERNELS), None, _KERNELS.splitlines(keepends=True), file)
    _sys.modules[name] = module
    try:
        with _own_architecture():
            exec(compile(_KERNELS, file, "exec"), vars(module))
        module.ModelNew
    except Exception as error:  # no compiler, no card, no cache folder: the plain forward is there
        del _sys.modules[name]
        said = " ".join(str(error).split())[:300]
        return None, f"its kernels can't be built here ({type(error).__name__}: {said})"
    return module, ""


_kernels, _NO_KERNELS = _load_kernels()
