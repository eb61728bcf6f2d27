"""The scene of a corpus run: one warm judge, and what is planted for candidates to find.

A canary lies in this process's environment and in a file in its home; a TCP port and an abstract
Unix socket listen.  What must hold after each candidate, whatever it did, is `Scene.damage`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from actors.evaluator.judge import Judge, JudgeUnavailableError
from protocol.settings import Limits
from protocol.values import DeviceKind, Outcome, Task, Verdict

HERE = Path(__file__).parent
# A card's first call makes its context.
LIMITS = {
    device: Limits(build_s=60.0, import_s=call_s, check_s=call_s, time_s=0.3, memory_gib=2.0)
    for device, call_s in (("cpu", 2.5), ("cuda", 4.0))
}
MARGIN = 1.1  # on a machine with two busy cores an equal module is this much "faster" by chance
LOOKS = 3  # a winner is judged again this many times in a run, too
SETTLE_S = 3.0
REPLACED = "the zygote was replaced"
# The second begins like a setting that children are given.
VARIABLES = ("STARK_CORPUS_CANARY", "NVIDIA_API_KEY")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One candidate, and what became of it."""

    path: Path
    verdict: Verdict | None  # none: the judge could not judge, which is false in itself
    words: str
    seconds: float
    damage: tuple[str, ...]  # what no longer held afterwards

    @property
    def honest(self) -> bool:
        return self.path.parent.name == "honest"

    @property
    def category(self) -> str:
        return category(self.path)

    @property
    def credited(self) -> bool:
        """Whether anybody would believe that it is faster than the reference."""
        return self.verdict is not None and credited(self.verdict)

    @property
    def fair(self) -> bool:
        """Whether it was judged as it deserves, and nothing was hurt."""
        if self.verdict is None or self.damage:
            return False
        return self.verdict.is_correct if self.honest else not self.credited


def credited(verdict: Verdict) -> bool:
    """Whether a verdict says that a candidate is faster than the reference by more than chance."""
    least = verdict.speedup_ci95[0] if verdict.speedup_ci95 else 1.0
    return verdict.is_correct and (verdict.speedup or 0.0) > MARGIN and least >= 1.0


def category(path: Path) -> str:
    """Return the first words of a candidate's docstring: what kind of thing it tries."""
    return path.read_text(encoding="utf-8").partition(":")[0].strip('"\n')


def candidates(device: DeviceKind, names: list[str] | None = None) -> list[Path]:
    """Return the candidates for a device, those of one category together."""
    root = HERE / "cuda" if device == "cuda" else HERE
    found = [path for path in root.glob("ho*/*.py") if not names or path.stem in names]
    return sorted(found, key=lambda path: (path.parent.name, category(path), path.stem))


class Scene:
    """One judge on one task, watched."""

    def __init__(
        self,
        judge: Judge,
        task: Task,
        canary: str,
        plants: list[socket.socket],
        heard: list[str],
    ) -> None:
        self.judge, self.task = judge, task
        self._heard = heard  # what the judge said for a log
        self._canary, self._plants = canary, plants
        root = HERE / "cuda" if judge.kind == "cuda" else HERE
        self._plain = (root / "honest" / "plain.py").read_text(encoding="utf-8")
        self._standards = 0
        self._was_fair = False  # an honest candidate was judged so, and nobody since
        self._zygote: int | None = None
        self._ours = 0
        self._left: set[str] = set()

    def start(self) -> str:
        """Judge a plain candidate; from then on whatever changes is a candidate's doing."""
        said = self._judge(self._plain)[1]
        self._zygote = self.judge.zygote_pid
        self._ours = len(descendants(os.getpid()))
        return said

    def look(self, path: Path) -> Judged:
        """Judge one candidate; who seems to be faster is looked at again, as a winner is."""
        judged = self._look(path)
        if any(words.startswith(REPLACED) for words in judged.damage):
            # A machine that stands still for seconds holds up the reference, too; whoever can
            # bring the zygote down does so every time.
            judged = self._look(path)
        return judged

    def _look(self, path: Path) -> Judged:
        began = time.monotonic()
        source = path.read_text(encoding="utf-8")
        self._heard.clear()
        verdict, words = self._judge(source)
        for _again in range(LOOKS - 1):
            if path.parent.name == "honest" or verdict is None or not credited(verdict):
                break
            verdict, words = self._judge(source)
        seconds = time.monotonic() - began
        damage = self._damage(words)
        ordinary = verdict is not None and verdict.verdict in (Outcome.CORRECT, Outcome.WRONG)
        if not ordinary:
            damage = (*damage, *self.unfair())
        return Judged(path=path, verdict=verdict, words=words, seconds=seconds, damage=damage)

    def unfair(self) -> tuple[str, ...]:
        """Say how an honest candidate is judged now, where that is not `correct`."""
        if self._was_fair:
            return ()
        verdict, words = self._judge(self._plain)
        if verdict is not None and verdict.is_correct:
            self._was_fair = True
            return ()
        # Another standard, so that those who come next are not judged by this one.
        self._standards += 1
        self.task = msgspec.structs.replace(self.task, name=f"corpus-{self._standards}")
        self.start()
        how = f"{verdict.verdict}: {verdict.reason[:120]}" if verdict else words[:160]
        return (f"afterwards an honest candidate is {how}",)

    def _judge(self, source: str) -> tuple[Verdict | None, str]:
        self._was_fair = False
        try:
            verdict = self.judge.judge(self.task, source)
        except JudgeUnavailableError as error:
            return None, f"unjudgeable: {error}"
        # A bug of ours that a candidate can reach: the finding that the corpus is there for.
        except Exception as error:
            return None, f"the judge raised {type(error).__name__}: {str(error)[:200]}"
        if isinstance(verdict, Verdict):
            return verdict, msgspec.json.encode(verdict).decode()
        return None, f"the task can't be judged: {verdict.reason}"

    def _damage(self, words: str) -> tuple[str, ...]:
        found = []
        if self._canary in words:
            found.append("the canary is in the verdict")
        if any(_called(plant) for plant in self._plants):
            found.append("a planted listener was called")
        if self.judge.zygote_pid != self._zygote:
            found.append(f"{REPLACED} ({'; '.join(self._heard)[:300]})")
            self.start()
        elif not self._settled():
            found.append("processes are left")
        left = {path.name for path in self.judge.scratch.root.glob("candidate-*")} - self._left
        self._left |= left  # said once: those who come next did not do it
        if left:
            found.append(f"files are left: {', '.join(sorted(left))}")
        return tuple(found)

    def _settled(self) -> bool:
        until = time.monotonic() + SETTLE_S
        # Not which: a reference that was hurt is replaced by a new one, of as many processes.
        while len(descendants(os.getpid())) > self._ours:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True


@contextlib.contextmanager
def scene(device: DeviceKind) -> Iterator[Scene]:
    """Set everything up, and take it away again."""
    canary = secrets.token_hex(12)
    root = HERE / "cuda" if device == "cuda" else HERE
    source = (root / "task.py").read_text(encoding="utf-8")
    task = Task(name="corpus", source=source, device=device)
    with ExitStack() as stack:
        # One thread: two that wait for each other are slowed tenfold by whoever else is here.
        planted = dict.fromkeys(VARIABLES, canary)
        for name, value in {**planted, "OMP_NUM_THREADS": "1"}.items():
            stack.callback(_restore, name, os.environ.get(name))
            os.environ[name] = value
        kept = Path.home() / f".stark-canary-{secrets.token_hex(4)}"
        stack.callback(kept.unlink, missing_ok=True)
        with contextlib.suppress(OSError):  # a home that can't be written has no canary
            kept.write_text(canary, encoding="ascii")
        plants = [stack.enter_context(plant) for plant in _plants()]
        folder = tempfile.mkdtemp()
        # Not shutil's rmtree: what a candidate nests deep enough overflows its stack.
        stack.callback(subprocess.run, ["rm", "-rf", folder], check=False)
        heard: list[str] = []
        judge = Judge(device, LIMITS[device], Path(folder) / "judge", log_line=heard.append)
        stack.callback(judge.close)
        yield Scene(judge, task, canary, plants, heard)


def _restore(name: str, value: str | None) -> None:
    if value is None:
        del os.environ[name]
    else:
        os.environ[name] = value


def _plants() -> list[socket.socket]:
    port = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0stark-corpus-{secrets.token_hex(4)}")
    abstract.listen()
    for plant in (port, abstract):
        plant.setblocking(False)
    return [port, abstract]


def _called(plant: socket.socket) -> bool:
    try:
        plant.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def descendants(root: int) -> set[int]:
    """Return the processes below `root`, also such as only look dead: with threads left."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                said = (entry / "stat").read_text().rpartition(")")[2].split()
                if said[0] not in "ZX" or int(said[17]) > 1:
                    children.setdefault(int(said[1]), []).append(int(entry.name))
    found: set[int] = set()
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found.update(below)
        todo.extend(below)
    return found
