"""The scene of a corpus run: one warm judge, with secrets and listeners for candidates to find.

The canary, a secret, is in this process's environment and in a file in its home.  A TCP port and an
abstract Unix socket listen.  `Scene` checks after each candidate that nothing is damaged: no secret
leaked, no listener called, no process and no file left, the zygote still the same.
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

from actors import procfs
from actors.evaluator.judge import Judge, JudgeUnavailableError
from protocol.settings import Limits
from protocol.values import DeviceKind, Outcome, Task, Verdict

HERE = Path(__file__).parent
# On a card the first call also makes the CUDA context.
LIMITS = {
    device: Limits(build_s=60.0, import_s=call_s, check_s=call_s, time_s=0.3, memory_gib=2.0)
    for device, call_s in (("cpu", 2.5), ("cuda", 4.0))
}
MARGIN = 1.1  # on a machine with two busy cores an equal module is this much "faster" by chance
JUDGEMENTS = 3  # a run confirms a winner in as many judgements, too
SETTLE_S = 3.0
REPLACED = "the zygote was replaced"
# The second has the prefix of settings that children get.
VARIABLES = ("STARK_CORPUS_CANARY", "NVIDIA_API_KEY")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One candidate with its verdict and its damage."""

    path: Path
    verdict: Verdict | None  # None: the judge could not judge it, which is a failure in itself
    text: str  # the verdict as JSON, or the reason why there is none
    seconds: float
    damage: tuple[str, ...]  # the checks that failed after it

    @property
    def is_honest(self) -> bool:
        return self.path.parent.name == "honest"

    @property
    def category(self) -> str:
        return category(self.path)

    @property
    def is_credited(self) -> bool:
        """Whether its verdict says that it is faster than the reference."""
        return self.verdict is not None and is_credited(self.verdict)

    @property
    def is_judged_right(self) -> bool:
        """Whether it was judged as it deserves and did no damage."""
        if self.verdict is None or self.damage:
            return False
        return self.verdict.is_correct if self.is_honest else not self.is_credited


def is_credited(verdict: Verdict) -> bool:
    """Whether a verdict says that a candidate is faster than the reference by more than chance."""
    lower = verdict.speedup_ci95[0] if verdict.speedup_ci95 else 1.0
    return verdict.is_correct and (verdict.speedup or 0.0) > MARGIN and lower >= 1.0


def category(path: Path) -> str:
    """Return the kind of a candidate: its docstring up to the colon."""
    return path.read_text(encoding="utf-8").partition(":")[0].strip('"\n')


def candidates(device: DeviceKind, names: list[str] | None = None) -> list[Path]:
    """Return the candidates for a device, ordered by category."""
    root = HERE / "cuda" if device == "cuda" else HERE
    found = [path for path in root.glob("ho*/*.py") if not names or path.stem in names]
    return sorted(found, key=lambda path: (path.parent.name, category(path), path.stem))


class Scene:
    """One judge on one task, with its secrets and listeners."""

    def __init__(
        self,
        judge: Judge,
        task: Task,
        canary: str,
        listeners: list[socket.socket],
        log_lines: list[str],
    ) -> None:
        self.judge, self.task = judge, task
        self._log_lines = log_lines  # the judge's log since the last candidate began
        self._canary, self._listeners = canary, listeners
        root = HERE / "cuda" if judge.kind == "cuda" else HERE
        self._plain = (root / "honest" / "plain.py").read_text(encoding="utf-8")
        self._fixtures = 0
        self._is_sound = False  # the last judgement was of the plain candidate, and correct
        self._zygote: int | None = None
        self._process_count = 0
        self._known_folders: set[str] = set()

    def start(self) -> str:
        """Judge the plain candidate; later changes of processes and files are a candidate's."""
        text = self._judge(self._plain)[1]
        self._zygote = self.judge.zygote_pid
        self._process_count = len(procfs.living_descendants(os.getpid()))
        return text

    def judge_candidate(self, path: Path) -> Judged:
        """Judge one candidate, once more if it replaced the zygote.

        A machine that stalls for seconds delays the reference, too, and the zygote is replaced.  A
        candidate that can end the zygote does so every time.
        """
        judged = self._judge_once(path)
        if any(damage.startswith(REPLACED) for damage in judged.damage):
            judged = self._judge_once(path)
        return judged

    def _judge_once(self, path: Path) -> Judged:
        """Judge one candidate; a hostile one that seems faster is judged again, as a winner is."""
        began = time.monotonic()
        source = path.read_text(encoding="utf-8")
        self._log_lines.clear()
        verdict, text = self._judge(source)
        for _again in range(JUDGEMENTS - 1):
            if path.parent.name == "honest" or verdict is None or not is_credited(verdict):
                break
            verdict, text = self._judge(source)
        seconds = time.monotonic() - began
        damage = self._damage(text)
        is_ordinary = verdict is not None and verdict.verdict in (Outcome.CORRECT, Outcome.WRONG)
        if not is_ordinary:
            damage = (*damage, *self.aftermath())
        return Judged(path=path, verdict=verdict, text=text, seconds=seconds, damage=damage)

    def aftermath(self) -> tuple[str, ...]:
        """Judge the plain candidate; return a description of its verdict if it is not correct.

        Three tries: damage stays, while a busy machine rejects an honest candidate now and then.
        """
        if self._is_sound:
            return ()
        for _try in range(3):
            verdict, text = self._judge(self._plain)
            if verdict is not None and verdict.is_correct:
                self._is_sound = True
                return ()
        # A new task name gives a new reference fixture, so later candidates do not use this one.
        self._fixtures += 1
        self.task = msgspec.structs.replace(self.task, name=f"corpus-{self._fixtures}")
        self.start()
        how = f"{verdict.verdict}: {verdict.reason[:120]}" if verdict else text[:160]
        return (f"afterwards an honest candidate is {how}",)

    def _judge(self, source: str) -> tuple[Verdict | None, str]:
        self._is_sound = False
        try:
            verdict = self.judge.judge(self.task, source)
        except JudgeUnavailableError as error:
            return None, f"unjudgeable: {error}"
        # A bug of the judge that a candidate can reach: the corpus exists to find these.
        except Exception as error:
            return None, f"the judge raised {type(error).__name__}: {str(error)[:200]}"
        if isinstance(verdict, Verdict):
            return verdict, msgspec.json.encode(verdict).decode()
        return None, f"the task can't be judged: {verdict.reason}"

    def _damage(self, text: str) -> tuple[str, ...]:
        found = []
        if self._canary in text:
            found.append("the canary is in the verdict")
        if any(_was_called(listener) for listener in self._listeners):
            found.append("a listener was called")
        if self.judge.zygote_pid != self._zygote:
            found.append(f"{REPLACED} ({'; '.join(self._log_lines)[:300]})")
            self.start()
        elif not self._processes_ended():
            found.append("processes are left")
        folders = {path.name for path in self.judge.scratch.root.glob("candidate-*")}
        left = folders - self._known_folders
        self._known_folders |= left  # reported once, for the candidate that left them
        if left:
            found.append(f"files are left: {', '.join(sorted(left))}")
        return tuple(found)

    def _processes_ended(self) -> bool:
        until = time.monotonic() + SETTLE_S
        # The number counts, not the pids: a new reference runner has as many processes as the old.
        while len(procfs.living_descendants(os.getpid())) > self._process_count:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True


@contextlib.contextmanager
def scene(device: DeviceKind) -> Iterator[Scene]:
    """Start a judge with secrets and listeners; remove everything afterwards."""
    canary = secrets.token_hex(12)
    root = HERE / "cuda" if device == "cuda" else HERE
    source = (root / "task.py").read_text(encoding="utf-8")
    task = Task(name="corpus", source=source, device=device)
    with ExitStack() as stack:
        # One thread: two threads that wait for each other are ten times slower on a busy machine.
        variables = {**dict.fromkeys(VARIABLES, canary), "OMP_NUM_THREADS": "1"}
        for name, value in variables.items():
            stack.callback(_restore, name, os.environ.get(name))
            os.environ[name] = value
        secret_file = Path.home() / f".stark-canary-{secrets.token_hex(4)}"
        stack.callback(secret_file.unlink, missing_ok=True)
        with contextlib.suppress(OSError):  # a home without write permission has no canary
            secret_file.write_text(canary, encoding="ascii")
        listeners = [stack.enter_context(listener) for listener in _open_listeners()]
        folder = tempfile.mkdtemp()
        # Not shutil's rmtree: folders that a candidate nests deeply overflow its stack.
        stack.callback(subprocess.run, ["rm", "-rf", folder], check=False)
        log_lines: list[str] = []
        judge = Judge(device, LIMITS[device], Path(folder) / "judge", log_line=log_lines.append)
        stack.callback(judge.close)
        yield Scene(judge, task, canary, listeners, log_lines)


def _restore(name: str, value: str | None) -> None:
    if value is None:
        del os.environ[name]
    else:
        os.environ[name] = value


def _open_listeners() -> list[socket.socket]:
    port = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0stark-corpus-{secrets.token_hex(4)}")
    abstract.listen()
    for listener in (port, abstract):
        listener.setblocking(False)
    return [port, abstract]


def _was_called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True
