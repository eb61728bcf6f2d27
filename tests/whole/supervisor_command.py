"""The command as a user runs it: real processes, real evaluator, a scripted model."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

TOP = Path(__file__).parent.parent.parent
SUPERVISOR = TOP / "supervisor.py"

# The work is repeated so that candidates differ by large factors.  One thread does it: threads that
# wait for each other on a busy machine would change the ranks that these tests compare.
TASK = '''"""Shift, scale and square roots, 27 times over: work that need be done but once."""

import torch
from torch import nn

torch.set_num_threads(1)

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        for _ in range(27):
            y = torch.sqrt(x * self.scale + 1.0)
        return y


def get_inputs():
    return [torch.rand(32, 1024)]


def get_init_inputs():
    return [1024]
'''


def candidate(times: int, wrong: bool = False) -> str:
    """Return a ModelNew that does the work `times` times; the task does it 27 times."""
    source = TASK.replace("class Model(", "class ModelNew(").replace("range(27)", f"range({times})")
    return source.replace("return y", "return y + 1.0") if wrong else source


def write_script(path: Path) -> Path:
    """Write a script of attempts whose times differ by large factors; return its path."""
    lines: list[dict[str, object]] = [{"role": "planner", "advice": "Do the work less often."}]
    lines += [
        {"role": "coder", "code": candidate(times)} for times in (9, 9, 80, 9, 240, 3, 1, 120)
    ]
    lines.append({"role": "coder", "attempt": 2, "code": candidate(9, wrong=True)})
    lines.append({"role": "coder", "attempt": 4, "code": "class ModelNew(: pass"})
    lines += [{"role": "debugger", "code": candidate(times)} for times in (80, 240)]
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return path


class Command:
    """One run folder, and the supervisor command that a user runs on it."""

    def __init__(self, folder: Path, *, budget: int = 6) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        self.budget = budget
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "chain.py").write_text(TASK, encoding="utf-8")
        (folder / "stark.toml").write_text("[limits]\ntime_s = 0.4\n", encoding="utf-8")
        write_script(folder / "script.jsonl")

    def arguments(self) -> list[str]:
        argv = ["--task", "chain.py", "--model", "script:script.jsonl", "--json"]
        return [*argv, "--budget", str(self.budget), "--run-dir", str(self.run_dir)]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(SUPERVISOR), *(arguments or self.arguments())],
            cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def finish(self, *arguments: str, timeout: float = 240.0) -> tuple[int, str, str]:
        """Run to the end; return (status, stdout, stderr)."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err

    def rows(self, query: str) -> list[tuple]:
        try:
            uri = f"file:{self.run_dir / 'run.db'}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as db:
                return db.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []

    def nodes(self) -> list[tuple]:
        return self.rows("SELECT number, parent, source, advice, word FROM node ORDER BY number")

    def mark(self) -> str:
        """Return the value of STARK_RUN in this run's processes; "" before the run has begun."""
        with suppress(FileNotFoundError):
            return (self.run_dir / "lock").read_text(encoding="utf-8").partition("\n")[0]
        return ""

    def processes(self) -> dict[int, str]:
        """Return pid -> name of every living process of this run."""
        marked = f"STARK_RUN={self.mark()}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if marked in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = command.decode(errors="replace").strip()
            except OSError:
                continue
        return {pid: name for pid, name in found.items() if name and pid != os.getpid()}

    def kill_actor(self, slot: str) -> None:
        """SIGKILL the actor in `slot`, but none of its children.

        The children have the slot in their arguments, too; a killed runner would be a verdict on
        its candidate.
        """
        found = {pid for pid, name in self.processes().items() if slot in name}
        for pid in found:
            with suppress(OSError):
                stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
                parent = int(stat.rpartition(")")[2].split()[1])
                if parent not in found:
                    os.kill(pid, signal.SIGKILL)
