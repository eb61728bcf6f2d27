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

from actors.evaluator.fastbuild import operator_index
from actors.evaluator.fastbuild.build_request import compiler_in_use
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.nvcc_preamble import PreambleCache
from actors.evaluator.fastbuild.operator_index import OperatorIndex
from actors.evaluator.fastbuild.precompiled_headers import (
    PrecompiledHeaders,
    compiler_identity,
    digest,
)

_FOLDER = Path(__file__).parent
GENERATOR_FILES = (
    "strip_bodies.py",
    "cuda_header_tree.py",
    "operator_index.py",
    "probe_build.py",
    "declared_names.py",
    "header_tree.py",
    "toolkit_builder.py",
)  # whose text decides what a toolkit holds
NAMES_FILE, LIGHT_MACROS_FILE, MACROS_FILE = "names", "light-macros", "macros"
EXPORTED_FILE, BINDING_FILE, LINKER_FILE = "exported", "binding.o", "linker"


class ToolkitMissingError(Exception):
    """There is no toolkit for this torch and compiler, or it can't be made."""


def headers_of_torch() -> Path:
    """Return the folder of the installed torch's headers."""
    return Path(torch.__file__).parent / "include"


def toolkit_key() -> str:
    """Return the name of the toolkit for the torch and the compiler in use."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in sorted(
            [*map(_FOLDER.joinpath, GENERATOR_FILES), *(_FOLDER / "native").iterdir()]
        )
    ]
    return digest(
        str(torch.__version__),
        str(torch.version.git_version),
        torch.compiled_with_cxx11_abi(),
        str(headers_of_torch()),
        sysconfig.get_config_var("SOABI"),
        sysconfig.get_path("include", "posix_prefix"),
        compiler_identity(compiler_in_use()),
        texts,
    )


class Toolkit:
    """One toolkit, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.precompiled = PrecompiledHeaders(folder / "precompiled")
        self.preambles = PreambleCache(folder / "openings")

    @property
    def key(self) -> str:
        return self.folder.name

    @property
    def binding(self) -> Path:
        return self.folder / BINDING_FILE

    @cached_property
    def index(self) -> OperatorIndex:
        return operator_index.read_index(self.folder)

    @cached_property
    def torch_names(self) -> frozenset[str]:
        """Every name that torch's full headers declare."""
        return self._list(NAMES_FILE)

    @cached_property
    def exported(self) -> frozenset[str]:
        """The methods of Tensor that torch's library defines, as the linker names them."""
        return self._list(EXPORTED_FILE)

    @cached_property
    def hidden_macros(self) -> frozenset[str]:
        """Macros that torch's full headers define and the light ones do not."""
        return self._list(MACROS_FILE) - self._list(LIGHT_MACROS_FILE)

    @cached_property
    def linker(self) -> tuple[str, ...]:
        """The flag for a faster linker, where one was seen to work."""
        return tuple((self.folder / LINKER_FILE).read_text(encoding="ascii").split())

    def _list(self, name: str) -> frozenset[str]:
        return frozenset((self.folder / name).read_text(encoding="utf-8").split())

    def include_folders(self, source: CandidateSource) -> list[Path]:
        """Return what is searched before torch's headers for `source`."""
        folders = [self.folder / "light"]
        if not source.is_cuda:
            return folders
        named = " ".join(source.includes)
        if not re.search(r"[<\"](thrust|cub|cuda|cute|cutlass|nv|cccl)/", named) and not any(
            "complex" in word.lower() for word in source.words
        ):
            folders.append(self.folder / "complex")
        if not re.search(r"cublas|cusparse|cusolver|blas|sparse", source.code, re.IGNORECASE):
            folders.append(self.folder / "context")
        return folders


def find_toolkit(store: Path) -> Toolkit:
    """Return the toolkit in `store` for the torch in use; raise `ToolkitMissingError` if there is
    none.
    """
    folder = store / toolkit_key()
    if not (folder / operator_index.FILE_NAME).exists():
        raise ToolkitMissingError(
            f"{store} holds no toolkit for torch {torch.__version__}; prepare it first"
        )
    return Toolkit(folder)
