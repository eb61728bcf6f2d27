"""`python -m tests.corpus [NAME …]`: one warm judge over the whole corpus, a table on stdout.

Honest candidates have to be correct; hostile ones must not be credited (correct and faster).
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from actors.evaluator.judge import Judge
from protocol.settings import Limits
from protocol.values import Task, Verdict

HERE = Path(__file__).parent
LIMITS = Limits(build_s=60.0, import_s=8.0, check_s=6.0, time_s=0.5, memory_gib=2.0)
MARGIN = 1.1  # on a machine with two busy cores an equal module is this much "faster" by chance


def credited(verdict: Verdict) -> bool:
    """Whether anybody would believe that it is faster than the reference."""
    return verdict.correct and (verdict.speedup or 0.0) > MARGIN


def main(names: list[str]) -> int:
    """Judge every candidate (or those named); return 1 when one was judged falsely."""
    task = Task(name="corpus", source=(HERE / "task.py").read_text(encoding="utf-8"))
    false = 0
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge("cpu", LIMITS, Path(folder) / "judge")
        try:
            for path in sorted(HERE.glob("ho*/*.py")):
                if not names or path.stem in names:
                    false += not _one(judge, task, path)
        finally:
            judge.close()
    print(f"{false} judged falsely")
    return min(false, 1)


def _one(judge: Judge, task: Task, path: Path) -> bool:
    source, began = path.read_text(encoding="utf-8"), time.monotonic()
    verdict = judge.judge(task, source)
    if not isinstance(verdict, Verdict):
        print(f"{path.stem}: the task can't be judged: {verdict.words}")
        return False
    honest = path.parent.name == "honest"
    good = verdict.correct if honest else not credited(verdict)
    category = source.partition(":")[0].strip('"\n')
    speedup = f"{verdict.speedup:.2f}" if verdict.speedup else "-"
    print(
        f"{'  ' if good else '!!'} {path.parent.name:8} {category:18} {path.stem:20} "
        f"{verdict.verdict:14} {speedup:>6} {time.monotonic() - began:5.1f} s  "
        f"{verdict.reason[:90]}",
        flush=True,
    )
    return good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
