"""Names of built things: digests of everything that went into them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

# The environment variables that change what torch's command lines mean.
BUILD_VARIABLES = ("TORCH_CUDA_ARCH_LIST", "CXX", "CC", "PYTORCH_NVCC", "CUDA_HOME", "CPATH")


def digest(*parts: object) -> str:
    """Return a name for all of `parts`."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def build_variables(environ: Mapping[str, str]) -> list[str | None]:
    """Return the values of `BUILD_VARIABLES`, in their order."""
    return [environ.get(name) for name in BUILD_VARIABLES]
