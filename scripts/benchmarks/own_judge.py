"""The judge of one benchmark: in a folder of its own, closed at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from actors.evaluator.judge import Judge, JudgeUnavailableError
from protocol.settings import Limits
from protocol.values import DeviceKind

NO_JUDGE = 4  # exit status: nothing can be judged on this machine


def with_own_judge(device: DeviceKind, time_s: float, measure: Callable[[Judge], int]) -> int:
    """Return what `measure` returns for a new judge; NO_JUDGE, with a line, where none works.

    `time_s`: of samples a candidate.
    """
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(device, Limits(time_s=time_s), Path(folder) / "judge")
        try:
            return measure(judge)
        except JudgeUnavailableError as error:
            print(f"could not judge: {error}")
            return NO_JUDGE
        finally:
            judge.close()
