"""What torch was asked to build: `_write_ninja_file_and_build_library`'s arguments, as a value."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path

import torch.utils.cpp_extension as extension

from actors.evaluator.fastbuild import compile_commands
from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.compile_commands import BuildCommands
from actors.evaluator.fastbuild.compiler_process import Deadline
from actors.evaluator.fastbuild.flag_set import BUILD_VARIABLES, FlagSet, cleaned
from actors.evaluator.fastbuild.precompiled_headers import digest
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
    """Return the C++ compiler that torch takes."""
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
    other: bool  # SYCL or a program of its own

    @classmethod
    def from_call(
        cls, build: Callable[..., object], args: tuple[object, ...], named: dict[str, object]
    ) -> BuildRequest | None:
        """Return the order in a call of torch's `build`; None if this torch asks otherwise."""
        call = inspect.signature(build).bind(*args, **named)
        call.apply_defaults()
        if not call.arguments.keys() >= REQUIRED_ARGUMENTS:
            return None
        given = call.arguments
        sources = tuple(CandidateSource.read(path) for path in given["sources"])
        return cls(
            name=given["name"],
            sources=sources,
            cflags=cleaned(given["extra_cflags"] or []),
            cuda_cflags=cleaned(given["extra_cuda_cflags"] or []),
            ldflags=cleaned(given["extra_ldflags"] or []),
            include_folders=cleaned(given["extra_include_paths"] or []),
            folder=str(Path(given["build_directory"]).absolute()),
            with_cuda=bool(given["with_cuda"])
            or (given["with_cuda"] is None and any(source.is_cuda for source in sources)),
            other=bool(given["with_sycl"] or given["is_standalone"] or given["extra_sycl_cflags"]),
        )

    @classmethod
    def from_flag_set(
        cls, name: str, sources: list[str], flag_set: FlagSet, folder: Path
    ) -> BuildRequest:
        """Return the order for `sources` with the flags of `flag_set`."""
        return cls(
            name=name,
            sources=tuple(CandidateSource.read(path) for path in sources),
            cflags=flag_set.cflags,
            cuda_cflags=flag_set.cuda_cflags,
            ldflags=(),
            include_folders=(),
            folder=str(folder),
            with_cuda=flag_set.with_cuda,
            other=False,
        )

    @property
    def flag_set(self) -> FlagSet:
        return FlagSet(cflags=self.cflags, cuda_cflags=self.cuda_cflags, with_cuda=self.with_cuda)

    @property
    def library(self) -> Path:
        """Where torch expects the library."""
        return Path(self.folder) / f"{self.name}{extension.LIB_EXT}"

    def key(self, toolkit: str) -> str:
        """Return a name for everything that goes into the library; not for where it lies."""
        texts = [(Path(source.path).name, source.text) for source in self.sources]
        flags = (self.cflags, self.cuda_cflags, self.ldflags, self.include_folders)
        environment = [os.environ.get(name) for name in BUILD_VARIABLES]
        return digest(toolkit, self.name, texts, flags, self.with_cuda, self.other, environment)

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
        return compile_commands.read_commands(folder, deadline)
