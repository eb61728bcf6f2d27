"""What torch was asked to build: the arguments of `_write_ninja_file_and_build_library`."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path

import torch.utils.cpp_extension as extension

from actors.evaluator.fastbuild.request.added_headers import headers_for_texts
from actors.evaluator.fastbuild.request.build_key import build_variables, digest
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compile_commands import BuildCommands, read_commands
from actors.evaluator.fastbuild.request.compiler_process import Deadline
from actors.evaluator.fastbuild.request.flag_set import (
    ADDED_FLAGS_VARIABLE,
    FlagSet,
    stripped,
    without_own_macros,
)
from actors.evaluator.fastbuild.request.local_headers import (
    LocalHeadersError,
    with_local_headers,
)
from protocol.values import Value

REQUIRED_ARGUMENTS = frozenset(
    [
        "name",
        "sources",
        "extra_cflags",
        "extra_cuda_cflags",
        "extra_sycl_cflags",
        "extra_ldflags",
        "extra_include_paths",
        "build_directory",
        "verbose",
        "with_cuda",
        "with_sycl",
        "is_standalone",
    ]
)


def compiler_in_use() -> str:
    """Return the C++ compiler that torch uses."""
    return str(extension.get_cxx_compiler())  # type: ignore[no-untyped-call]


class BuildRequest(Value, frozen=True, kw_only=True):
    """One extension to build."""

    name: str
    sources: tuple[CandidateSource, ...]
    cflags: tuple[str, ...]
    cuda_cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_folders: tuple[str, ...]
    folder: str
    with_cuda: bool
    is_special: bool  # SYCL, or a program instead of a library
    unclear_headers: str = ""  # why the candidate's own headers can't be followed; "" if they can

    @classmethod
    def from_call(
        cls, build: Callable[..., object], args: tuple[object, ...], named: dict[str, object]
    ) -> BuildRequest | None:
        """Return the request in a call of torch's `build`; None if this torch's lacks arguments."""
        call = inspect.signature(build).bind(*args, **named)
        call.apply_defaults()
        if not call.arguments.keys() >= REQUIRED_ARGUMENTS:
            return None
        arguments = call.arguments
        sources = tuple(CandidateSource.read(path) for path in arguments["sources"])
        folders = stripped(arguments["extra_include_paths"] or [])
        unclear = ""
        try:
            sources = tuple(with_local_headers(source, folders) for source in sources)
        except LocalHeadersError as error:
            unclear = str(error)
        added = os.environ.get(ADDED_FLAGS_VARIABLE, "").split()
        return cls(
            name=arguments["name"],
            sources=sources,
            cflags=stripped([*(arguments["extra_cflags"] or []), *added]),
            cuda_cflags=stripped(arguments["extra_cuda_cflags"] or []),
            ldflags=stripped([*(arguments["extra_ldflags"] or []), *added]),
            include_folders=folders,
            folder=str(Path(arguments["build_directory"]).absolute()),
            with_cuda=bool(arguments["with_cuda"])
            or (arguments["with_cuda"] is None and any(source.is_cuda for source in sources)),
            is_special=bool(
                arguments["with_sycl"]
                or arguments["is_standalone"]
                or arguments["extra_sycl_cflags"]
            ),
            unclear_headers=unclear,
        )

    @classmethod
    def from_flag_set(
        cls, name: str, sources: list[str], flag_set: FlagSet, folder: Path
    ) -> BuildRequest:
        """Return the request for `sources` with the flags of `flag_set`."""
        return cls(
            name=name,
            sources=tuple(CandidateSource.read(path) for path in sources),
            cflags=flag_set.cflags,
            cuda_cflags=flag_set.cuda_cflags,
            ldflags=(),
            include_folders=(),
            folder=str(folder),
            with_cuda=flag_set.with_cuda,
            is_special=False,
        )

    @property
    def flag_set(self) -> FlagSet:
        device = [source for source in self.sources if source.is_cuda]
        host = [source for source in self.sources if not source.is_cuda]
        return FlagSet(
            cflags=without_own_macros(self.cflags),
            cuda_cflags=without_own_macros(self.cuda_cflags),
            with_cuda=self.with_cuda,
            cpp_headers=headers_for_texts([source.whole_code for source in host], device=False),
            cuda_headers=headers_for_texts([source.text for source in device], device=True),
        )

    @property
    def library(self) -> Path:
        """The path at which torch expects the library."""
        return Path(self.folder) / f"{self.name}{extension.LIB_EXT}"

    def key(self, toolkit: str) -> str:
        """Return a name for everything that goes into the library; its folder is not part of it."""
        texts = [
            (Path(source.path).name, source.text, [header.text for header in source.headers])
            for source in self.sources
        ]
        flags = (self.cflags, self.cuda_cflags, self.ldflags, self.include_folders)
        environment = build_variables(os.environ)
        return digest(
            toolkit, self.name, texts, flags, self.with_cuda, self.is_special, environment
        )

    def commands(self, deadline: Deadline) -> BuildCommands:
        """Have torch write its build file and return the commands in it."""
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.redirect_stdout(None):
            libraries = extension._prepare_ldflags(  # type: ignore[no-untyped-call]
                list(self.ldflags), self.with_cuda, False, False, False
            )
        extension._write_ninja_file_to_build_library(
            path=str(folder / "build.ninja"),
            name=self.name,
            sources=[source.path for source in self.sources],
            extra_cflags=list(self.cflags),
            extra_cuda_cflags=list(self.cuda_cflags),
            extra_sycl_cflags=[],
            extra_ldflags=libraries,
            extra_include_paths=list(self.include_folders),
            with_cuda=self.with_cuda,
            with_sycl=False,
            is_standalone=False,
        )
        return read_commands(folder, deadline)
