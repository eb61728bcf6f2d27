"""nvcc's own steps for one source, read from `nvcc -dryrun`, so that they can run side by side.

Without device linking there are seven for one architecture.  The device half (preprocess, cicc,
ptxas; then fatbinary) and the host half (preprocess, cudafe++) need nothing of each other except
the module name that both must use; g++ comes last.  Each further architecture adds a device half,
whose steps have its number after their names.  nvcc itself runs any other set of steps.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from actors.evaluator.fastbuild.request.build_key import digest
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compiler_process import CompilerRun, Deadline, run_compiler
from protocol.values import Value

DEVICE_STEPS = ("device text", "cicc", "ptxas")
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
        """The file with the module name that both halves must use; "" if cudafe++ names none."""
        found = _MODULE_FILE.search(self.commands["cudafe++"])
        return found[1] if found else ""

    def name_module(self, source: CandidateSource) -> None:
        """Write the module name, so that cicc need not wait until cudafe++ has written it."""
        text_digest = digest(source.text)
        stem = re.sub(r"\W", "_", Path(source.path).name)
        name = f"_{text_digest[:8]}_{len(stem)}_{stem}_{text_digest[8:16]}"
        Path(self.module_file).write_text(name, encoding="ascii")

    def output(self, name: str) -> Path:
        """Return the file that a step writes its text to."""
        argv = shlex.split(self.commands[name])
        return Path(argv[argv.index("--gen_c_file_name" if name == "cudafe++" else "-o") + 1])

    def flags(self, name: str) -> list[str]:
        """Return a step's flags without those that name files."""
        argv = shlex.split(self.commands[name])
        return [argument for argument in argv if argument.startswith("-") and "/" not in argument]

    def run(self, name: str, folder: Path, deadline: Deadline) -> CompilerRun:
        """Run one step in `folder`."""
        return run_compiler(
            ["/bin/sh", "-c", self.commands[name]], folder, deadline, self.environment()
        )

    @property
    def architectures(self) -> int:
        """The number of device halves."""
        return sum(1 for name in self.commands if name.startswith("device text"))

    def host_text_argv(self) -> tuple[str, ...]:
        """Return the host compiler's command for the source, without -E and -o."""
        argv = shlex.split(self.commands["host text"])
        at = argv.index("-o")
        return tuple(argument for argument in argv[:at] + argv[at + 2 :] if argument != "-E")


def step_of(command: str) -> str:
    """Return the name of the step that `command` is; "" for a command that is not a known step."""
    first = command.split()[0].strip('"')
    name = first.rsplit("/", 1)[-1]
    if name in ("cicc", "ptxas", "fatbinary", "cudafe++"):
        return name
    if not _COMPILER.match(name):
        return ""
    if " -E " not in command:
        return "host g++"
    return "device text" if "-D__CUDA_ARCH__=" in command else "host text"


def numbered(name: str, half: int) -> str:
    """Return the name of a device half's step; the first half's steps have no number."""
    return name if half <= 1 else f"{name} {half}"


def _stem(argv: list[str]) -> str:
    """Return the name of the source in nvcc's command, without its ending."""
    return Path(argv[argv.index("-c") + 1]).stem


def plan_steps(
    argv: list[str], folder: Path, scratch: Path, deadline: Deadline
) -> NvccSteps | CompilerRun | None:
    """Return the steps of the nvcc command `argv`.

    Returns the failed run when nvcc rejects the flags, and None when the steps are not the usual
    ones.
    """
    ran = run_compiler([*argv, "--keep", "--keep-dir", str(scratch), "-dryrun"], folder, deadline)
    if ran.status:
        return ran
    settings: dict[str, str] = {}
    commands: dict[str, str] = {}
    halves = 0
    # nvcc names its files after the source; here they have the same names for all sources.
    own = rf'({re.escape(str(scratch))}/|"){re.escape(_stem(argv))}\.(?!cu\b)'
    own_name = re.compile(own)
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
        if name in DEVICE_STEPS:
            halves += name == "device text"
            name = numbered(name, halves)
        if not name or name in commands:
            return None
        commands[name] = own_name.sub(r"\1cuda.", text.replace(" --gen_module_id_file", ""))
    if not set(commands) >= set(STEP_NAMES):
        return None
    steps = NvccSteps(commands=commands, settings=settings)
    return steps if steps.module_file else None


def kept_whole(file: Path) -> Path:
    """Return the file that keeps the whole text of `file`, a step's output."""
    return file.with_name(f"{file.name}.whole")
