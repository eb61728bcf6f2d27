"""A run folder with as many nodes as wanted, written in a moment: sources, plans, calls, leases.

Its texts are of a realistic size and differ from node to node as a search's do: a child has its
parent's source with some lines changed, a request repeats the instructions and a window of sources.
`python -m tests.watch.synthetic_run FOLDER NODES` makes one to try a page on.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import msgspec

from actors.coordinator.storage.database import schema
from protocol import settings as settings_file
from protocol.run_db import RUN_DB
from protocol.settings import SearchSettings, Settings
from protocol.values import (
    Device,
    Outcome,
    Plan,
    Reference,
    Seconds,
    Task,
    TimedGroups,
    Verdict,
)

WORDS = ("tile", "vector", "block", "warp", "shared", "load", "store", "stride", "unroll", "lane")
SYSTEM_LINES = 180  # of a request: the instructions, the same in all of them
SOURCE_LINES = 140
WINDOW = 4  # earlier sources in a request
BEGAN = 1_700_000_000.0


class TextWriter:
    """Makes texts of lines that look like code."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.system = [self.line() for _ in range(SYSTEM_LINES)]

    def line(self) -> str:
        words = self._rng.choices(WORDS, k=self._rng.randint(3, 9))
        return f"    {' '.join(words)}[{self._rng.randrange(10**6)}];"

    def source(self, parent: list[str]) -> list[str]:
        """Return a child's lines: a sixth of its parent's are others."""
        lines = list(parent or (self.line() for _ in range(SOURCE_LINES)))
        for _ in range(len(lines) // 6):
            lines[self._rng.randrange(len(lines))] = self.line()
        return lines


def write_run(
    folder: Path, nodes: int, *, tasks: int = 1, seed: int = 0, status: str = "finished"
) -> Path:
    """Write a run with `nodes` attempts in each task; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = tuple(f"task_{number}" for number in range(tasks))
    search = SearchSettings(budget=nodes)
    settings_file.write(folder, Settings(tasks=names, model="claude-synthetic", search=search))
    with closing(sqlite3.connect(folder / RUN_DB)) as run:
        run.executescript(schema())
        run.execute(
            "INSERT INTO run (id, run_id, status, epoch, created, started, seconds)"
            " VALUES (1, ?, ?, 1, ?, ?, 3600.0)",
            (f"synthetic{seed}", status, BEGAN, BEGAN),
        )
        for name in names:
            _write_task(run, name, nodes, random.Random(f"{seed} {name}"))
        run.execute(
            "INSERT INTO worker (slot, role, incarnation, pid, state, doing, since, starts, how)"
            " VALUES ('evaluator-0', 'evaluator', 'x', 1, 'up', '', ?, 1, '')",
            (BEGAN,),
        )
        if status == "finished":
            run.execute(
                "UPDATE node SET confirmed = 1 WHERE id IN (SELECT id FROM"
                " (SELECT id, MIN(score_us) FROM node WHERE number > 0 GROUP BY task))"
            )
        run.commit()
        run.execute("PRAGMA journal_mode = WAL")
    return folder


def _write_task(run: sqlite3.Connection, name: str, nodes: int, rng: random.Random) -> None:
    texts = TextWriter(rng)
    reference = Reference(eager_us=1000.0, device=Device(name="a device", fingerprint="f"))
    sources: list[list[str]] = [texts.source([])]
    task = Task(name=name, source="\n".join(sources[0]))
    encode = msgspec.msgpack.encode
    run.execute(
        "INSERT INTO task (name, source, settings, budget, reference, status)"
        " VALUES (?, ?, ?, ?, ?, 'finished')",
        (name, task.source, encode(task), nodes, encode(reference)),
    )
    root = Verdict(verdict=Outcome.CORRECT, median_us=1000.0, reference_us=1000.0, speedup=1.0)
    _add_node(run, name, 0, None, task.source, "", root, 1000.0, None)
    for number in range(1, nodes + 1):
        parent = rng.randrange(max(0, number - 40), number)
        sources.append(texts.source(sources[parent]))
        _write_attempt(run, name, number, parent, sources, texts, rng)


def _write_attempt(
    run: sqlite3.Connection,
    task: str,
    number: int,
    parent: int,
    sources: list[list[str]],
    texts: TextWriter,
    rng: random.Random,
) -> None:
    source, scaffold = "\n".join(sources[number]), "\n".join(sources[parent])
    plan = Plan(advice=f"{texts.line().strip()} {texts.line().strip()}", scaffold=scaffold)
    blob = msgspec.msgpack.encode(plan)
    run.execute(
        "INSERT INTO attempt (task, number, parent, kind, plan, state)"
        " VALUES (?, ?, ?, 'improve', ?, 'done')",
        (task, number, parent, blob),
    )
    window = [sources[rng.randrange(number)] for _ in range(WINDOW)]
    request = "\n".join(line for part in (texts.system, *window, [plan.advice]) for line in part)
    for role, stage, reply in (("planner", "plan", plan.advice), ("coder", "write", source)):
        at = BEGAN + number
        work = f"{task}/{number}/{stage}"
        run.execute(
            "INSERT INTO call (work, role, model, request, reply, stop, input_tokens,"
            " cached_tokens, output_tokens, usd, seconds, at)"
            " VALUES (?, ?, 'claude-synthetic', ?, ?, 'end_turn', 9000, 0, 1500, 0.03, 12.5, ?)",
            (work, role, request, reply, at),
        )
        _add_lease(run, work, f"{role}-0", at)
    _add_lease(run, f"{task}/{number}/evaluate", "evaluator-0", BEGAN + number + 20)
    run.execute(
        "INSERT INTO event (at, what, subject, detail) VALUES (?, 'selected', ?, ?)",
        (BEGAN + number, f"{task}/{number}", f"node {parent}"),
    )
    verdict, score_us = _verdict(texts, rng)
    _add_node(run, task, number, parent, source, plan.advice, verdict, score_us, blob)


def _verdict(texts: TextWriter, rng: random.Random) -> tuple[Verdict, float | None]:
    seconds = Seconds(build=rng.uniform(1, 9), check=rng.uniform(0.5, 3), time=rng.uniform(1, 10))
    if rng.random() < 0.35:
        log = "\n".join(texts.line() for _ in range(rng.randint(5, 120)))
        reason = f"error: {texts.line().strip()}"
        failed = Verdict(
            verdict=Outcome.COMPILE_FAILED, reason=reason, stage="build", log=log, seconds=seconds
        )
        return failed, None
    speedup = rng.lognormvariate(0.3, 0.5)
    ratios = [speedup * rng.lognormvariate(0, 0.02) for _ in range(24)]
    groups = TimedGroups(
        reference_us=(1000.0,) * len(ratios),
        candidate_us=tuple(round(1000.0 / ratio, 2) for ratio in ratios),
    )
    verdict = Verdict(
        verdict=Outcome.CORRECT,
        median_us=1000.0 / speedup,
        reference_us=1000.0,
        speedup=speedup,
        speedup_ci95=(speedup * 0.98, speedup * 1.02),
        max_error=0.01,
        profile={"timing": "24 groups A B B A", "bandwidth": "12 GB/s, 30% of the peak (table)"},
        seconds=seconds,
        sandbox_level=3,
        device="f",
        groups=groups,
    )
    return verdict, 1000.0 / speedup


def _add_node(
    run: sqlite3.Connection,
    task: str,
    number: int,
    parent: int | None,
    source: str,
    advice: str,
    verdict: Verdict,
    score_us: float | None,
    plan: bytes | None,
) -> None:
    run.execute(
        "INSERT INTO node (task, number, parent, source, advice, word, verdict, score_us, plan,"
        " outside, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            task,
            number,
            parent,
            source,
            advice,
            verdict.verdict,
            msgspec.msgpack.encode(verdict),
            score_us,
            plan,
            json.dumps([]),
            BEGAN + number + 30,
        ),
    )


def _add_lease(run: sqlite3.Connection, work: str, slot: str, at: float) -> None:
    run.execute(
        "INSERT INTO lease (work, slot, incarnation, granted, ended, outcome, running)"
        " VALUES (?, ?, 'x', ?, ?, 'done', 1)",
        (work, slot, at, at + 10),
    )


if __name__ == "__main__":
    print(write_run(Path(sys.argv[1]), int(sys.argv[2])))  # noqa: T201  # a program for people
