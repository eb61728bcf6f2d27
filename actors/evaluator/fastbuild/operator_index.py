"""What the generator found in the installed torch, by name.  Written once, read by every build."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path

import msgspec

from protocol.values import Value

FILE_NAME = "index.json"


class OperatorIndex(Value, frozen=True, kw_only=True, dict=True):
    """torch's operators as its headers declare them."""

    methods: dict[str, list[str]]  # Tensor method -> its inline definitions
    operators: dict[str, str]  # struct in at::_ops -> the file under ATen/ops that declares it
    functions: list[str]  # X where ATen/ops/X.h declares at::X
    factories: dict[
        str, list[str]
    ]  # function of namespace torch that makes a tensor -> definitions
    always_methods: list[str]  # what every candidate gets, named or not
    always_functions: list[str]

    @cached_property
    def function_names(self) -> frozenset[str]:
        return frozenset(self.functions)

    def write(self, folder: Path) -> None:
        """Write it into `folder`."""
        (folder / FILE_NAME).write_bytes(msgspec.json.encode(self))


@lru_cache(maxsize=4)
def read_index(folder: Path) -> OperatorIndex:
    """Return the index that was written into `folder`."""
    return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=OperatorIndex)
