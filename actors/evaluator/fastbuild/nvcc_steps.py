"""nvcc's own steps for one source, read from `nvcc -dryrun`, so that we can run them side by side.

With one architecture and no device linking these are seven: the device's half (preprocess, cicc,
ptxas, fatbinary) and the host's (preprocess, cudafe++) need nothing of each other but a name that
both must use; g++ comes last.  Any other set of steps is nvcc's own business.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from actors.evaluator.fastbuild.candidate_source import CandidateSource
from actors.evaluator.fastbuild.compiler_process import CompilerRun, Deadline, run_compiler
from actors.evaluator.fastbuild.precompiled_headers import digest
from protocol.values import Value

STEP_NAMES = ("device text", "cicc", "ptxas", "fatbinary", "host text", "cudafe++", "host g++")
_SETTING = re.compile(r"([A-Za-z_]\w*)\s?=(.*)", re.DOTALL)
_MODULE_FILE = re.compile(r'--module_id_file_name "([^"]+)"')
_COMPILER = re.compile(r"\S*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-\d+)?$")


class NvccSteps(Value, frozen=True, kw_only=True):
    """The steps by name, and the environment that nvcc gives them."""

    commands: dict[str, str]
    settings: dict[str, str]

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.settings}

    @property
    def module_file(self) -> str:
        """The file that holds the name which both halves must use."""
        found = _MODULE_FILE.search(self.commands["cudafe++"])
        return found[1] if found else ""

    def name_module(self, source: CandidateSource) -> None:
        """Write the name that cudafe++ would write for cicc, so that neither waits."""
        word = digest(source.text)
        stem = re.sub(r"\W", "_", Path(source.path).name)
        name = f"_{word[:8]}_{len(stem)}_{stem}_{word[8:16]}"
        Path(self.module_file).write_text(name, encoding="ascii")

    def output(self, name: str) -> Path:
        """Return the file that a step writes its text to."""
        words = shlex.split(self.commands[name])
        return Path(words[words.index("--gen_c_file_name" if name == "cudafe++" else "-o") + 1])

    def flags(self, name: str) -> list[str]:
        """Return a step's flags without those that name files."""
        words = shlex.split(self.commands[name])
        return [word for word in words if word.startswith("-") and "/" not in word]

    def run(self, name: str, folder: Path, deadline: Deadline) -> CompilerRun:
        """Run one step."""
        return run_compiler(
            ["/bin/sh", "-c", self.commands[name]], folder, deadline, self.environment()
        )

    def host_text_argv(self) -> tuple[str, ...]:
        """Return the host compiler's command for the source, without -E and -o."""
        words = shlex.split(self.commands["host text"])
        at = words.index("-o")
        return tuple(word for word in words[:at] + words[at + 2 :] if word != "-E")


def step_of(command: str) -> str:
    """Return which step `command` is; "" for none that we know."""
    first = command.split()[0].strip('"')
    name = first.rsplit("/", 1)[-1]
    if name in ("cicc", "ptxas", "fatbinary", "cudafe++"):
        return name
    if not _COMPILER.match(name):
        return ""
    if " -E " not in command:
        return "host g++"
    return "device text" if "-D__CUDA_ARCH__=" in command else "host text"


def plan_steps(
    argv: list[str], folder: Path, scratch: Path, deadline: Deadline
) -> NvccSteps | CompilerRun | None:
    """Return the steps of the nvcc command `argv`.

    None when they are other than the usual seven, nvcc's words when it refuses the flags.
    """
    ran = run_compiler([*argv, "--keep", "--keep-dir", str(scratch), "-dryrun"], folder, deadline)
    if ran.status:
        return ran
    settings: dict[str, str] = {}
    commands: dict[str, str] = {}
    for line in ran.output.splitlines():
        if not line.startswith("#$ "):
            continue
        text = line[3:].strip()
        setting = _SETTING.fullmatch(text)
        if setting and not commands:
            settings[setting[1]] = setting[2].strip()
            continue
        if text.startswith(("rm ", "-- ")):
            continue
        name = step_of(text)
        if not name or name in commands:
            return None
        commands[name] = text.replace(" --gen_module_id_file", "")
    if set(commands) != set(STEP_NAMES):
        return None
    steps = NvccSteps(commands=commands, settings=settings)
    return steps if steps.module_file else None
