"""A run.db like a coordinator's, written with the coordinator's own schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from actors.coordinator.storage.database import schema
from protocol import settings as settings_file
from protocol.run_views import VERDICT_COLUMNS, reference_columns, verdict_columns
from protocol.settings import SearchSettings, Settings
from protocol.values import Device, Outcome, Reference, Seconds, Task, Verdict

TASK_SOURCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
def get_inputs():
    return [torch.randn(8, 8)]
def get_init_inputs():
    return []
"""
WINNER = "class ModelNew:\n    '<script>alert(1)</script>'\n"
REFERENCE = Reference(
    eager_us=1000.0, compile_us=800.0, device=Device(name="Test CPU, 2 cores", fingerprint="cpu/1")
)
JUDGED = Seconds(build=1.0, check=0.5, time=0.5)


def correct(median_us: float, sandbox_level: int = 2) -> Verdict:
    """Return the verdict of a correct candidate, against 1000 µs."""
    ratio = 1000.0 / median_us
    return Verdict(
        verdict=Outcome.CORRECT,
        median_us=median_us,
        reference_us=1000.0,
        speedup=ratio,
        speedup_ci95=(ratio * 0.99, ratio * 1.01),
        seconds=JUDGED,
        sandbox_level=sandbox_level,
        device="cpu/1",
    )


def failed(word: Outcome, reason: str, stage: str = "build") -> Verdict:
    """Return the verdict of a candidate that failed."""
    return Verdict(
        verdict=word,
        reason=reason,
        stage=stage,  # type: ignore[arg-type]
        log="x" * 1000,
        seconds=JUDGED,
        sandbox_level=1,
    )


def score_of(verdict: Verdict) -> float | None:
    """Return the score that a coordinator gives a verdict."""
    return REFERENCE.eager_us / verdict.speedup if verdict.is_correct and verdict.speedup else None


NODES: tuple[tuple[int, int, Verdict], ...] = (
    (1, 0, failed(Outcome.COMPILE_FAILED, "error: expected ';' before <b>")),
    (2, 0, correct(800.0)),
    (3, 2, correct(400.0)),
    (4, 2, failed(Outcome.WRONG, "y[0, 1] is 2.0, expected 1.0", stage="check")),
    (5, 3, correct(500.0)),
    (6, 0, Verdict(verdict=Outcome.NO_CANDIDATE, reason="the model refused")),
)


class Sample:
    """One run folder with a database that a test can add to."""

    def __init__(
        self,
        path: Path,
        *,
        names: tuple[str, ...] = ("gelu",),
        budget: int = 6,
        nodes: tuple[tuple[int, int, Verdict], ...] = NODES,
        status: str = "finished",
        run_id: str = "abc",
    ) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / "tasks").mkdir(exist_ok=True)
        self.settings = Settings(
            tasks=names, model_reason="as asked", seed=7, search=SearchSettings(budget=budget)
        )
        settings_file.write(path, self.settings)
        self.db = sqlite3.connect(path / "run.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.executescript(schema())
        self.db.execute(
            "INSERT INTO run (id, run_id, status, epoch, created, started, seconds)"
            " VALUES (1, ?, ?, 1, 1.0, 1.0, 12.5)",
            (run_id, status),
        )
        for name in names:
            self.add_task(name, budget, nodes, "finished" if status == "finished" else "measured")

    def add_task(
        self,
        name: str,
        budget: int,
        nodes: tuple[tuple[int, int, Verdict], ...],
        status: str = "finished",
    ) -> None:
        """Add a task; the best node of a finished task was judged again, with the same verdict."""
        (self.path / "tasks" / f"{name}.py").write_text(TASK_SOURCE)
        self.db.execute(
            "INSERT INTO task (name, source, settings, budget, reference, status)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                name,
                TASK_SOURCE,
                msgspec.msgpack.encode(Task(name=name, source=TASK_SOURCE)),
                budget,
                msgspec.msgpack.encode(REFERENCE),
                status,
            ),
        )
        figures = reference_columns(REFERENCE)
        self.db.execute(
            f"UPDATE task SET {', '.join(f'{key} = ?' for key in figures)}"  # noqa: S608
            " WHERE name = ?",
            (*figures.values(), name),
        )
        self.add_node(name, 0, None, correct(1000.0), TASK_SOURCE)
        for number, parent, verdict in nodes:
            self.add_node(name, number, parent, verdict)
        scores = [(score_of(verdict), number) for number, _, verdict in nodes if verdict.is_correct]
        if status == "finished" and scores:
            self.confirm(name, min(scores)[1])

    def confirm(self, task: str, number: int, verdict: Verdict | None = None) -> None:
        """Record that a node was judged again, with `verdict`."""
        columns = ", ".join(("task", "number", "verdict", "score_us", "word", *VERDICT_COLUMNS))
        self.db.execute(
            f"INSERT OR IGNORE INTO first_look ({columns})"  # noqa: S608
            f" SELECT {columns} FROM node WHERE task = ? AND number = ?",
            (task, number),
        )
        if verdict is not None:
            self.db.execute(
                "UPDATE node SET word = ?, verdict = ?, score_us = ? WHERE task = ? AND number = ?",
                (
                    verdict.verdict,
                    msgspec.msgpack.encode(verdict),
                    score_of(verdict),
                    task,
                    number,
                ),
            )
            self._write_figures(task, number, verdict)
        self.db.execute(
            "UPDATE node SET confirmed = 1 WHERE task = ? AND number = ?", (task, number)
        )

    def add_node(
        self, task: str, number: int, parent: int | None, verdict: Verdict, source: str = WINNER
    ) -> None:
        self.db.execute(
            "INSERT INTO node (task, number, parent, source, advice, word, verdict, score_us,"
            " outside, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, '[]', ?)",
            (
                task,
                number,
                parent,
                source,
                f"advice <{number}>",
                verdict.verdict,
                msgspec.msgpack.encode(verdict),
                score_of(verdict),
                float(number),
            ),
        )
        self._write_figures(task, number, verdict)
        if number:
            self.db.execute(
                "INSERT INTO attempt (task, number, parent, kind, state, advice)"
                " VALUES (?, ?, ?, 'improve', 'done', ?)",
                (task, number, parent, f"advice <{number}>"),
            )

    def _write_figures(self, task: str, number: int, verdict: Verdict) -> None:
        columns = verdict_columns(verdict)
        values = ", ".join(f"{name} = ?" for name in columns)
        self.db.execute(
            f"UPDATE node SET {values} WHERE task = ? AND number = ?",  # noqa: S608
            (*columns.values(), task, number),
        )

    def add_call(self, work: str, usd: float | None, tokens: int = 100) -> None:
        self.db.execute(
            "INSERT INTO call (work, role, model, request, reply, stop, temperature, input_tokens,"
            " cached_tokens, output_tokens, usd, seconds, at)"
            " VALUES (?, 'planner', 'm', 'q', 'a', 'end_turn', NULL, ?, 10, 20, ?, 1.0, 1.0)",
            (work, tokens, usd),
        )

    def set_status(self, status: str, reason: str = "") -> None:
        self.db.execute("UPDATE run SET status = ?, reason = ?", (status, reason))
