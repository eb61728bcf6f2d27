"""The state of one half of nvcc's work after the preamble: stored once, where later builds start.

Two things are stored: the preamble's macros, which gcc reads instead of its text (`macro_replay`),
and the memory of a parser that has read it (`parser_image`).  Where headers launch kernels the text
is whole, so an error is the candidate's as it would be without; elsewhere it has no bodies
(`strip_bodies`), since a parser goes through bodies at its end.  A parser that finds an error does
not come to that, so a second image, of a parser that has read the whole text, tells errors.
What can't start there is compiled from its beginning.  For headers that take the parsers long
(`added_headers.are_long`): an image has the size of the parser's memory, 0.7 GB with thrust.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template

from actors.evaluator.fastbuild.headers.toolkit import Toolkit
from actors.evaluator.fastbuild.nvcc.macro_replay import (
    MacroReplay,
    MacroReplayError,
    files_in,
    split_at_source,
)
from actors.evaluator.fastbuild.nvcc.nvcc_preamble import (
    ANY_SOURCE,
    NvccHalf,
    read_text,
    split_preamble,
    write_text,
)
from actors.evaluator.fastbuild.nvcc.nvcc_steps import NvccSteps
from actors.evaluator.fastbuild.nvcc.parser_image import ParserImage, machine_identity
from actors.evaluator.fastbuild.nvcc.text_process import names_declared
from actors.evaluator.fastbuild.request.build_key import digest
from actors.evaluator.fastbuild.request.compiler_process import CompilerRun, Deadline
from actors.evaluator.fastbuild.store.build_store import UNFINISHED_PREFIX, remove_unfinished

MOST_SNAPSHOTS = 10  # of one machine in one toolkit: 10 GB, and twice as many on a large disk
LARGE_FREE = 32 << 30  # bytes of the disk
KEPT_S = 3600.0  # since it was last prepared: after that a snapshot makes place for a new one
UNUSED_S = 30 * 86400.0  # after which another machine's snapshots are removed
LEAST_FREE = 4 << 30  # bytes of the disk: nothing is stored on a fuller one
_WRITTEN_FILE, _HEADERS_FILE, _DECLARED_FILE = "written.cpp", "headers", "declared"
_WHOLE_IMAGE = "image-whole"
_NAME = re.compile(r"\bTORCH_EXTENSION_NAME=\w+")


@dataclass(frozen=True, kw_only=True)
class HalfInput:
    """One half of one source's compilation."""

    half: NvccHalf
    steps: NvccSteps
    scratch: Path
    own_folder: Path  # of the headers that only this source has
    source: str

    @property
    def parser_command(self) -> str:
        """The parser's command for a source that could be any, in its working folder."""
        return self._common(self.half.parser)

    @property
    def key(self) -> str:
        """The name of what this half has in common with others."""
        command = _NAME.sub("", self._common(self.half.text))
        variables = [os.environ.get(name) for name in ("CPATH", "CPLUS_INCLUDE_PATH")]
        return digest(command, self.parser_command, self.steps.settings, variables)

    def _common(self, step: str) -> str:
        """Return a step's command without the names that are this source's own."""
        command = self.steps.commands[step].replace(f'"{self.own_folder}"', '"own"')
        return command.replace(f'"{self.source}"', f'"{ANY_SOURCE}"').replace(
            f"{self.scratch}/", ""
        )


class PreambleSnapshot:
    """One stored state: of a half, for the commands and headers that it was made with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replay = MacroReplay(folder)
        self.image = ParserImage(folder)
        self.whole_image = ParserImage(folder, _WHOLE_IMAGE)

    @classmethod
    def find(cls, toolkit: Toolkit, given: HalfInput) -> PreambleSnapshot | None:
        """Return the snapshot for these commands on this machine."""
        found = cls(_folder(toolkit, given))
        return found if found.is_current() else None

    def keep(self) -> None:
        """Note that it was asked for: others make place first."""
        with suppress(OSError):
            os.utime(self.folder)

    def is_current(self) -> bool:
        """Whether the headers are as they were."""
        try:
            stamp, *files = read_text(self.folder / _HEADERS_FILE).split("\n")
        except OSError:  # there is no such snapshot
            return False
        return stamp == _stamp(files)

    @property
    def is_stripped(self) -> bool:
        """Whether the parser has read a preamble without bodies: it may find a false error."""
        return self.whole_image.file.exists()

    @property
    def written(self) -> str:
        """What cudafe++ writes for the preamble."""
        return read_text(self.folder / _WRITTEN_FILE)

    @property
    def declared(self) -> frozenset[str]:
        """The names that the preamble declares or defines."""
        return frozenset(read_text(self.folder / _DECLARED_FILE).split())

    def make(self, given: HalfInput, preamble: str, stripped: str, deadline: Deadline) -> bool:
        """Write macros and images for `preamble`; return whether all could be made.

        `stripped`: the preamble without bodies, which the parser reads then; "" for all bodies.
        """
        command, environment = given.steps.commands[given.half.text], given.steps.environment()
        files = [*_programs_of(given), *sorted(_headers_of(preamble, given))]
        write_text(self.folder / _HEADERS_FILE, "\n".join([_stamp(files), *files]))
        try:
            text = self.replay.make(command, given.source, environment, deadline)
        except MacroReplayError:
            return False
        if text != preamble:
            return False
        lines = (line for line in preamble.splitlines() if not line.startswith("#"))
        names = names_declared("\n".join(lines), deadline) | self.replay.macro_names()
        write_text(self.folder / _DECLARED_FILE, "\n".join(sorted(names)))
        images = [(self.image, stripped), (self.whole_image, preamble)] if stripped else []
        return all(
            self._make_image(image, given, text, deadline)
            for image, text in images or [(self.image, preamble)]
        )

    def _make_image(
        self, image: ParserImage, given: HalfInput, text: str, deadline: Deadline
    ) -> bool:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            file = Path(name, given.steps.output(given.half.text).name)
            write_text(file, text.replace(given.source, ANY_SOURCE))
            # A candidate may read the image: it must not hold this process's environment.
            return image.make(given.parser_command, file, given.steps.settings, deadline)

    def preprocess(self, given: HalfInput, deadline: Deadline) -> bool:
        """Write the source's own text for the parser; False if its preamble is needed for that."""
        rest = self.replay.preprocess(
            given.steps.commands[given.half.text],
            given.source,
            given.steps.environment(),
            deadline,
        )
        if rest is None:
            return False
        text = given.steps.output(given.half.text)
        write_text(text.with_name(f"{text.name}.rest"), rest)
        return True

    def parse(
        self, given: HalfInput, deadline: Deadline, *, whole: bool = False
    ) -> CompilerRun | None:
        """Parse that text; None if the parser can't go on.

        `whole`: by the parser that has read all bodies, where the other one has not.
        """
        image = self.whole_image if whole else self.image
        ran = image.run(given.steps.output(given.half.text), deadline)
        return ran and _with_source(ran, given.source)


def store_preamble_snapshot(
    toolkit: Toolkit,
    given: HalfInput,
    deadline: Deadline,
    is_same: Callable[[], bool],
    written: str = "",
    stripped: str = "",
) -> None:
    """Store the snapshot of a probe, whose whole text has been written and parsed.

    `stripped`: the text up to the end mark without bodies, where no kernel of these headers may
    need any.  The snapshot is stored only if `is_same` finds the same output of the parsers that go
    on as before.  A full disk, or one on which no program may run, has no snapshots: builds parse
    the headers.
    """
    with suppress(OSError):
        if shutil.disk_usage(toolkit.folder).free >= LEAST_FREE:
            _store(_folder(toolkit, given), given, deadline, is_same, written, stripped)


def _store(
    folder: Path,
    given: HalfInput,
    deadline: Deadline,
    is_same: Callable[[], bool],
    written: str,
    stripped: str,
) -> None:
    whole = split_at_source(read_text(given.steps.output(given.half.text)), given.source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    others = [each for each in folder.parent.iterdir() if _is_finished(each)]
    is_large = shutil.disk_usage(folder.parent).free >= LARGE_FREE
    if folder in others or whole is None or not _has_place(others, MOST_SNAPSHOTS * (1 + is_large)):
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=UNFINISHED_PREFIX) as name:
        stored = PreambleSnapshot(Path(name, "snapshot"))
        stored.folder.mkdir()
        if stripped:
            end = split_preamble(whole[0])
            stripped += end[1] if end else ""
        if not stored.make(given, whole[0], stripped, deadline):
            return
        for is_whole in (True, False) if stripped else (False,):
            ran = stored.preprocess(given, deadline) and stored.parse(
                given, deadline, whole=is_whole
            )
            if not ran or ran.status or not is_same():
                return
        write_text(stored.folder / _WRITTEN_FILE, written)
        stored.folder.rename(folder)


def _has_place(others: list[Path], most: int) -> bool:
    """Whether there are fewer than `most`, if need be without the one prepared longest ago."""
    if len(others) < most:
        return True
    oldest = min(others, key=lambda each: each.stat().st_mtime)
    if time.time() - oldest.stat().st_mtime < KEPT_S:
        return False
    shutil.rmtree(oldest, ignore_errors=True)
    return True


def remove_unused_snapshots(toolkit: Toolkit) -> None:
    """Remove snapshots of old headers, of killed makers, and of machines not seen for long.

    To be called whenever the toolkit is prepared: this machine uses it.
    """
    own = _machine_folder(toolkit)
    with suppress(OSError):
        os.utime(own)
    remove_unfinished(own)
    for stored in filter(_is_finished, own.glob("*")):
        if not PreambleSnapshot(stored).is_current():
            shutil.rmtree(stored, ignore_errors=True)
    for other in toolkit.snapshots_folder.glob("*"):
        with suppress(OSError):  # another machine has just removed it
            if other != own and time.time() - other.stat().st_mtime > UNUSED_S:
                shutil.rmtree(other)


def _is_finished(entry: Path) -> bool:
    return not entry.name.startswith(UNFINISHED_PREFIX)


def _headers_of(preamble: str, given: HalfInput) -> Iterable[str]:
    """Return the files of a preamble that all sources have."""
    own = given.source, f"{given.scratch}/", f"{given.own_folder}/"
    return (
        file for file in files_in(preamble) if file.startswith("/") and not file.startswith(own)
    )


def _programs_of(given: HalfInput) -> list[str]:
    """Return the compilers that read the headers: another one needs another snapshot."""
    settings = given.steps.settings
    found = []
    for step in (given.half.text, given.half.parser):
        named = shlex.split(given.steps.commands[step])[0]
        path = shutil.which(Template(named).safe_substitute(settings), path=settings.get("PATH"))
        found.append(os.path.realpath(path) if path else "")
    return found


def _stamp(files: Iterable[str]) -> str:
    """Return what another content of the files changes, also where their times are put back."""
    found: list[tuple[str, int, int, int]] = []
    for file in files:
        try:
            status = Path(file).stat()
        except OSError:
            found.append((file, 0, 0, 0))
        else:
            found.append((file, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return digest(found)


def _with_source(ran: CompilerRun, source: str) -> CompilerRun:
    output = ran.output.replace(ANY_SOURCE, source)
    return CompilerRun(status=ran.status, output=output, seconds=ran.seconds)


def _folder(toolkit: Toolkit, given: HalfInput) -> Path:
    return _machine_folder(toolkit) / digest(given.half.kind, given.key)


def _machine_folder(toolkit: Toolkit) -> Path:
    return toolkit.snapshots_folder / machine_identity()
