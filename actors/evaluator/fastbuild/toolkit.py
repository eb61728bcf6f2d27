"""What fast builds of one torch with one compiler need: headers, binding, word lists.

The store is written by trusted code only (`workshop`); a process that runs a candidate finds a
toolkit in it and reads.  Everything that goes into a toolkit is in the name of its folder.
"""

from __future__ import annotations

import re
import sysconfig
from functools import cached_property
from pathlib import Path

import torch

from actors.evaluator.fastbuild import index
from actors.evaluator.fastbuild.index import Index
from actors.evaluator.fastbuild.openings import Openings
from actors.evaluator.fastbuild.order import compiler_in_use
from actors.evaluator.fastbuild.precompiled import Precompiled, digest, identity
from actors.evaluator.fastbuild.source import Source

_ROOM = Path(__file__).parent
MAKERS = (
    "bodies.py",
    "device_tree.py",
    "index.py",
    "learning.py",
    "names.py",
    "tree.py",
    "workshop.py",
)  # whose text decides what a toolkit holds
NAMES, LIGHT_MACROS, MACROS = "names", "light-macros", "macros"
EXPORTED, BINDING, LINKER = "exported", "binding.o", "linker"


class Unprepared(Exception):
    """There is no toolkit for this torch and compiler, or it can't be made."""


def headers_of_torch() -> Path:
    """Return the folder of the installed torch's headers."""
    return Path(torch.__file__).parent / "include"


def key() -> str:
    """Return the name of the toolkit for the torch and the compiler in use."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in sorted([*map(_ROOM.joinpath, MAKERS), *(_ROOM / "native").iterdir()])
    ]
    return digest(
        str(torch.__version__),
        str(torch.version.git_version),
        torch.compiled_with_cxx11_abi(),
        str(headers_of_torch()),
        sysconfig.get_config_var("SOABI"),
        sysconfig.get_path("include", "posix_prefix"),
        identity(compiler_in_use()),
        texts,
    )


class Toolkit:
    """One toolkit, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.precompiled = Precompiled(folder / "precompiled")
        self.openings = Openings(folder / "openings")

    @property
    def key(self) -> str:
        return self.folder.name

    @property
    def binding(self) -> Path:
        return self.folder / BINDING

    @cached_property
    def index(self) -> Index:
        return index.read(self.folder)

    @cached_property
    def torch_names(self) -> frozenset[str]:
        """Every name that torch's full headers declare."""
        return self._list(NAMES)

    @cached_property
    def exported(self) -> frozenset[str]:
        """The methods of Tensor that torch's library defines, as the linker names them."""
        return self._list(EXPORTED)

    @cached_property
    def hidden_macros(self) -> frozenset[str]:
        """Macros that torch's full headers define and the light ones do not."""
        return self._list(MACROS) - self._list(LIGHT_MACROS)

    @cached_property
    def linker(self) -> tuple[str, ...]:
        """The flag for a faster linker, where one was seen to work."""
        return tuple((self.folder / LINKER).read_text(encoding="ascii").split())

    def _list(self, name: str) -> frozenset[str]:
        return frozenset((self.folder / name).read_text(encoding="utf-8").split())

    def include_folders(self, source: Source) -> list[Path]:
        """Return what is searched before torch's headers for `source`."""
        folders = [self.folder / "light"]
        if not source.for_device:
            return folders
        named = " ".join(source.includes)
        if not re.search(r"[<\"](thrust|cub|cuda|cute|cutlass|nv|cccl)/", named) and not any(
            "complex" in word.lower() for word in source.words
        ):
            folders.append(self.folder / "complex")
        if not re.search(r"cublas|cusparse|cusolver|blas|sparse", source.code, re.IGNORECASE):
            folders.append(self.folder / "context")
        return folders


def find(store: Path) -> Toolkit:
    """Return the toolkit in `store` for the torch in use; raise `Unprepared` if there is none."""
    folder = store / key()
    if not (folder / index.FILE_NAME).exists():
        raise Unprepared(
            f"{store} holds no toolkit for torch {torch.__version__}; prepare it first"
        )
    return Toolkit(folder)
