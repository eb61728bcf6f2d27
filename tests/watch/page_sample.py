"""A run as the page's server would tell it, made up from a seed: any number of nodes, and more."""

from __future__ import annotations

import math
import random
import time
from typing import Any

from sample_texts import FAILURES, IDEAS, SOURCE

TASK = "gelu_mlp"
EAGER_US = 1284.0


class PageSample:
    """One run that can grow; `since` and `node` are the answers of the page's server."""

    def __init__(
        self, attempts: int = 24, *, budget: int = 30, seed: int = 7, name: str = ""
    ) -> None:
        self.random = random.Random(seed)
        self.started = time.time() - 14 * 60
        self.budget = budget
        self.name = name or f"{TASK}-20260318"
        self.run_id = f"{seed * 0x9E3779B97F4A7C15 % (1 << 64):016x}"
        self.seq = 0
        self.changed: dict[int, int] = {}  # number -> seq
        self.nodes: dict[int, dict[str, Any]] = {}
        self.attempts: list[dict[str, Any]] = []
        self.directives: list[dict[str, Any]] = []
        self.questions: dict[str, str] = {}  # name -> what the agent asks
        self.task = {
            "name": TASK,
            "status": "measured",
            "budget": budget,
            "attempts": 0,
            "eager_us": EAGER_US,
            "compile_us": 911.0,
            "max_autotune_us": None,
            "floor_us": 96.0,
            "best": None,
            "device": "NVIDIA H100 80GB HBM3",
            "problem": "",
        }
        self.run: dict[str, Any] = {
            "id": self.run_id[:12],
            "name": self.name,
            "run_id": self.run_id,
            "status": "running",
            "reason": "",
            "paused": False,
            "is_served": True,
            "trouble": "",
            "seconds": 14 * 60.0,
            "started": self.started,
            "budget": budget,
            "usd": 0.0,
            "cap_usd": 5.0,
            "minutes": 60,
            "strategy": "stark",
            "policy": "epsilon-greedy",
            "model": "claude-sonnet-4-5",
            "person": {},
        }
        self._add(self._root())
        self.correct = [self.nodes[0]]
        for _ in range(attempts):
            self.grow()

    def under_way(self) -> None:
        """Let three attempts be under way."""
        first = max(self.nodes) + 1
        stages = (
            ("write", "coder-0", 23),
            ("evaluate", "evaluator-0", 4),
            ("plan", "planner-1", 71),
        )
        best = self.task["best"] or 0
        self.attempts = [
            {
                "task": TASK,
                "number": first + index,
                "parent": best if index else first - 1,
                "kind": "improve",
                "stage": stage,
                "slot": slot,
                "role": slot.split("-")[0],
                "since": time.time() - seconds,
            }
            for index, (stage, slot, seconds) in enumerate(stages)
        ]

    def grow(self, **changes: Any) -> dict[str, Any]:
        """Record one more attempt, and return its summary."""
        number = max(self.nodes) + 1
        parent = (
            self.nodes[self.task["best"]]
            if self.task["best"] is not None and self.random.random() < 0.4
            else self.random.choice(self.correct[-60:])
        )
        node = self._attempt(number, parent) | changes
        self._add(node)
        if node["verdict"] == "correct":
            self.correct.append(node)
        best = self.nodes.get(self.task["best"] or -1)
        is_faster = node["verdict"] == "correct" and node["low"] is not None and node["low"] > 1
        if is_faster and (best is None or node["speedup"] > best["speedup"]):
            self.task["best"] = number
        self.task["attempts"] = number
        self.run["usd"] = round(self.run["usd"] + node["usd"], 6)
        return node

    def finish(self) -> None:
        """End the run with a confirmed winner."""
        best = self.nodes[self.task["best"]]
        best |= {"confirmed": True, "first_speedup": best["speedup"]}
        self._add(best)
        self.attempts = []
        self.task["status"] = "finished"
        self.run |= {"status": "finished", "reason": "the attempt budget has ended"}

    def since(self, seq: int) -> dict[str, Any]:
        """Return what changed after `seq`."""
        is_whole = seq == 0
        return {
            "seq": self.seq,
            "now": time.time(),
            "whole": is_whole,
            "run": dict(self.run),
            "tasks": [dict(self.task)],
            "nodes": [dict(self.nodes[number]) for number, at in self.changed.items() if at > seq],
            "attempts": list(self.attempts),
            "workers": self._workers(),
            "events": self._events() if is_whole else [],
            "directives": list(self.directives),
        }

    def node(self, number: int) -> dict[str, Any]:
        """Return the details of one node."""
        summary = self.nodes[number]
        source = self.source(number)
        is_correct = summary["verdict"] == "correct"
        return {
            "summary": summary,
            "source": source,
            "parent_source": self.source(summary["parent"]) if number else None,
            "best_source": self.source(self.task["best"]) if self.task["best"] else None,
            "root_source": self.source(0),
            "plan": None
            if not number
            else {"advice": summary["idea"], "anchors": [[15, 16]], "text": source},
            "outside": [],
            "calls": self._calls(number, source) if number else [],
            "log": "" if is_correct else self._log(summary),
            "verdict": self._verdict(summary),
            "timing": self._timing(summary) if is_correct and number else None,
            "profile": {
                "bandwidth": "1.92 TB/s, 57% of the peak",
                "bound": "memory",
                "registers": "96",
            }
            if is_correct and number
            else None,
            "floor_us": 96.0,
            "stages": self._stages(summary) if number else [],
            "first_look": None,
        }

    def source(self, number: int) -> str:
        """Return the source of a node: it differs from its parent's in a few lines."""
        node = self.nodes[number]
        text = SOURCE % {
            "idea": node["idea"] or "the plain loop",
            "unroll": 1 << number % 4,
            "width": 1024,
        }
        return text.replace("ModelNew", "Model") if number == 0 else text

    # --- parts -----------------------------------------------------------------------------------

    def _add(self, node: dict[str, Any]) -> None:
        self.seq += 1
        self.nodes[node["number"]] = node
        self.changed[node["number"]] = self.seq

    def _root(self) -> dict[str, Any]:
        return self._attempt(0, None) | {
            "kind": "root",
            "idea": "",
            "verdict": "correct",
            "reason": "",
            "speedup": 1.0,
            "low": None,
            "high": None,
            "us": EAGER_US,
            "usd": 0.0,
            "tokens": 0,
        }

    def _attempt(self, number: int, parent: dict[str, Any] | None) -> dict[str, Any]:
        draw = self.random
        is_correct = draw.random() < 0.6
        before = (parent or {}).get("speedup") or 1.0
        speedup = min(before * math.exp(draw.gauss(0.06, 0.22)), 9.0)
        wide = speedup * draw.uniform(0.005, 0.03)
        verdict = "correct" if is_correct else draw.choice(list(FAILURES))
        return {
            "task": TASK,
            "number": number,
            "parent": parent["number"] if parent else None,
            "kind": "improve" if draw.random() < 0.8 else "repair",
            "idea": draw.choice(IDEAS),
            "verdict": verdict,
            "reason": FAILURES.get(verdict, ""),
            "speedup": speedup if is_correct else None,
            "low": speedup - wide if is_correct else None,
            "high": speedup + wide if is_correct else None,
            "us": EAGER_US / speedup if is_correct else None,
            "first_speedup": None,
            "confirmed": False,
            "renamed": False,
            "labels": [],
            "pinned": False,
            "pruned": False,
            "by_person": False,
            "at": self.started + 28 * number + draw.uniform(0, 12),
            "usd": round(draw.uniform(0.02, 0.07), 4),
            "tokens": draw.randrange(8_000, 30_000),
            "build_s": draw.uniform(2, 9),
            "check_s": 1.2,
            "timing_s": 3.4,
        }

    def _workers(self) -> list[dict[str, Any]]:
        doing = {attempt["slot"]: attempt for attempt in self.attempts}
        roles = ("planner", "planner", "coder", "coder", "debugger", "evaluator")
        slots = [f"{role}-{roles[:index].count(role)}" for index, role in enumerate(roles)]
        return [
            {
                "slot": slot,
                "role": role,
                "state": "up",
                "doing": f"{doing[slot]['stage']} {TASK}/{doing[slot]['number']}"
                if slot in doing
                else "",
                "since": doing[slot]["since"] if slot in doing else self.started + 600,
                "starts": 2 if slot == "coder-1" else 1,
                "how": "exit 1" if slot == "coder-1" else "",
                "leases": int(slot in doing),
                "rtt_ms": 0.8,
                "quarantine": "",
                "host": "",
                "device": "NVIDIA H100 80GB HBM3" if role == "evaluator" else "",
            }
            for slot, role in zip(slots, roles, strict=True)
        ]

    def _events(self) -> list[dict[str, Any]]:
        return [
            {
                "id": 1,
                "at": self.started,
                "what": "coordinator",
                "subject": "epoch 1",
                "detail": "",
            },
            {
                "id": 2,
                "at": self.started + 1,
                "what": "hello",
                "subject": "evaluator-0",
                "detail": "pid 4711",
            },
            {
                "id": 3,
                "at": self.started + 300,
                "what": "lost",
                "subject": "coder-1",
                "detail": "exit 1",
            },
        ]

    def _calls(self, number: int, source: str) -> list[dict[str, Any]]:
        at = self.nodes[number]["at"]
        common = {"model": "claude-sonnet-4-5", "stop": "end_turn", "cached_tokens": 6200, "at": at}
        return [
            common
            | {
                "role": "planner",
                "request": f"[system]\n\nYou plan.\n\n[node]\n\n{source}",
                "reply": f"## Advice\n\n{self.nodes[number]['idea']}",
                "input_tokens": 9200,
                "output_tokens": 640,
                "usd": 0.017,
                "seconds": 11.2,
            },
            common
            | {
                "role": "coder",
                "request": f"[system]\n\nYou write code.\n\n[node]\n\n{source}",
                "reply": f"## Candidate\n\n```python\n{source}```\n",
                "input_tokens": 8100,
                "output_tokens": 2100,
                "usd": 0.029,
                "seconds": 24.9,
            },
        ]

    def _log(self, summary: dict[str, Any]) -> str:
        return f"[1/2] nvcc -O3 -arch=sm_90a kernel.cu\n{summary['reason']}\n1 error detected.\n"

    def _verdict(self, summary: dict[str, Any]) -> dict[str, Any]:
        return {
            "word": summary["verdict"],
            "reason": summary["reason"],
            "stage": "",
            "notes": [],
            "lines": [
                summary["reason"] or f"correct {summary['speedup']:.2f}×, first look",
                "build 5.1 s, check 1.2 s, time 3.4 s",
                "3 fresh inputs of 6 kinds agreed",
            ],
            "details": {"max_error": 0.21, "sandbox_level": 3, "device": "NVIDIA H100 80GB HBM3"},
        }

    def _timing(self, summary: dict[str, Any]) -> dict[str, Any]:
        draw = random.Random(summary["number"])
        reference = [EAGER_US * math.exp(draw.gauss(0, 0.012)) for _ in range(80)]
        candidate = [summary["us"] * math.exp(draw.gauss(0, 0.015)) for _ in range(80)]
        ratio = [before / after for before, after in zip(reference, candidate, strict=True)]
        return {"reference_us": reference, "candidate_us": candidate, "ratio": ratio}

    def _stages(self, summary: dict[str, Any]) -> list[dict[str, Any]]:
        at = summary["at"]
        spans = (
            ("plan", "planner-0", 40, 28),
            ("write", "coder-1", 28, 10),
            ("evaluate", "evaluator-0", 9.7, 0),
        )
        return [
            {
                "stage": stage,
                "slot": slot,
                "granted": at - begin,
                "ended": at - end,
                "outcome": "done",
            }
            for stage, slot, begin, end in spans
        ]
