"""The toolkit: what fast builds of one torch with one compiler need (headers, binding, lists).

Only trusted code writes toolkits (`toolkit_builder`); a process that runs a candidate reads one.
Everything that goes into a toolkit is in its key, which is the name of its folder.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch

from actors.evaluator.fastbuild.headers.header_tree import (
    NATIVE,
    OperatorIndex,
    read_index,
)
from actors.evaluator.fastbuild.headers.precompiled_headers import (
    PrecompiledHeaders,
    compiler_identity,
)
from actors.evaluator.fastbuild.request.added_headers import AUTOGRAD
from actors.evaluator.fastbuild.request.build_key import digest
from actors.evaluator.fastbuild.request.build_request import compiler_in_use
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.store.build_store import ToolkitMissingError

_FASTBUILD = Path(__file__).parents[1]
# The files that decide the content of a toolkit: their text is part of its key.
GENERATOR_FILES = (
    "headers/cuda_header_tree.py",
    "headers/declared_names.py",
    "headers/graph_headers.py",
    "headers/header_tree.py",
    "nvcc/preamble_snapshot.py",
    "nvcc/macro_replay.py",
    "nvcc/native/image_loader.cpp",
    "nvcc/native/image_writer.cpp",
    "nvcc/native/process_image.h",
    "nvcc/parser_image.py",
    "nvcc/probe_build.py",
    "nvcc/strip_bodies.py",
    "request/added_headers.py",
    "toolkit_builder.py",
    "toolkit_probe.py",
)
NAMES_FILE, LIGHT_MACROS_FILE, MACROS_FILE = "names", "light-macros", "macros"
EXPORTED_FILE, LINKER_FILE = "exported", "linker"
BINDING_FILES = ("binding.o", "binding_arguments.o")
COMPLETE_FILE = "complete"  # the last file of a toolkit that trusted code makes
GRAPHS_FOLDER, GRAPHS_FILE = "graphs", "graphs.o"


def headers_of_torch() -> Path:
    """Return the folder of the installed torch's headers."""
    return Path(torch.__file__).parent / "include"


def toolkit_key() -> str:
    """Return the name of the toolkit for the torch and the compiler in use."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in sorted([*map(_FASTBUILD.joinpath, GENERATOR_FILES), *NATIVE.iterdir()])
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
        self.preambles_folder = folder / "preambles"  # of `nvcc_preamble.PreambleCache`
        self.snapshots_folder = folder / "snapshots"  # of `preamble_snapshot.PreambleSnapshot`

    def is_complete(self) -> bool:
        """Whether candidates can be built with it."""
        return (self.folder / COMPLETE_FILE).exists()

    @property
    def key(self) -> str:
        return self.folder.name

    @property
    def binding(self) -> list[Path]:
        """The objects of the prebuilt binding."""
        return [self.folder / name for name in BINDING_FILES]

    @property
    def graphs(self) -> Path:
        """The object that a source with graphs is linked with, if trusted code has made it."""
        return self.folder / GRAPHS_FILE

    def torch_folders(self, headers: Sequence[str]) -> list[Path]:
        """Return the folders of what replaces torch's headers, for a source with `headers`."""
        light = self.folder / "light"
        if AUTOGRAD in headers and self.graphs.exists():
            return [self.folder / GRAPHS_FOLDER, light]
        return [light]

    @cached_property
    def index(self) -> OperatorIndex:
        return read_index(self.folder)

    @cached_property
    def torch_names(self) -> frozenset[str]:
        """Every name that torch's full headers declare."""
        return self._names(NAMES_FILE)

    @cached_property
    def exported(self) -> frozenset[str]:
        """The methods of Tensor that torch's library defines, as the linker names them."""
        return self._names(EXPORTED_FILE)

    @cached_property
    def hidden_macros(self) -> frozenset[str]:
        """Macros that torch's full headers define and the light ones do not."""
        return self._names(MACROS_FILE) - self._names(LIGHT_MACROS_FILE)

    @cached_property
    def linker(self) -> tuple[str, ...]:
        """The flag for a faster linker; empty where none worked for the toolkit's probe."""
        return tuple((self.folder / LINKER_FILE).read_text(encoding="ascii").split())

    def _names(self, file: str) -> frozenset[str]:
        return frozenset((self.folder / file).read_text(encoding="utf-8").split())

    def preamble_folder(self, added: tuple[str, ...]) -> Path:
        """Return the folder of the preamble with these added headers; trusted code makes it."""
        return self.folder / "added" / digest(added) if added else self.folder / "light"

    def include_folders(self, source: CandidateSource, added: Sequence[str] = ()) -> list[Path]:
        """Return the folders that are searched before torch's headers for `source`.

        `added`: headers that it gets without including them.
        """
        folders = self.torch_folders(added)
        if not source.is_cuda:
            return folders
        includes = " ".join([*source.includes, *(f"<{header}>" for header in added)])
        # The headers in cuda/ and nv/ include nothing of thrust.
        if not re.search(r"[<\"](thrust|cub|cute|cutlass|cccl)/", includes) and not any(
            "complex" in name.lower() for name in source.identifiers
        ):
            folders.append(self.folder / "complex")
        return [*folders, self.folder / "context"]


def find_toolkit(store: Path) -> Toolkit:
    """Return the toolkit in the folder `store` for the torch and the compiler in use.

    Raises `ToolkitMissingError` if the folder has none.
    """
    folder = store / toolkit_key()
    toolkit = Toolkit(folder)
    if not toolkit.is_complete():
        raise ToolkitMissingError(
            f"{store} holds no toolkit for torch {torch.__version__}; prepare it first"
        )
    return toolkit
