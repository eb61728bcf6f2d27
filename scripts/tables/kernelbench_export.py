"""The export in KernelBench's own layout, so that its scripts can score our kernels.

    kernelbench/runs/levelN/level_N_problem_P_sample_0_kernel.py   for eval_from_generations.py
    kernelbench/judged/levelN/eval_results.json                    our verdicts, as it writes them
    kernelbench/timing/baseline_time_torch*.json                   our baselines, as it names them

Kernels and verdicts are in separate folders: its evaluation skips problems that already have
results.  Its times are milliseconds, and called means; ours are medians.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from actors.supervisor.reporting.run_data import run_results
from actors.supervisor.reporting.run_data.run_reader import RunReader
from protocol.atomic_file import write_atomically
from scripts.tables.result_rows import ProblemRow, RunRows

FOLDER = "kernelbench"
TIMINGS = {
    "baseline_time_torch": "eager_us",
    "baseline_time_torch_compile_inductor_default": "compile_us",
    "baseline_time_torch_compile_inductor_max-autotune": "max_autotune_us",
}


def write(place: Path, run_dir: Path, rows: RunRows) -> None:
    """Write the export of one run below `place`; an older export there is replaced."""
    top = place / FOLDER
    shutil.rmtree(top, ignore_errors=True)
    for level in rows.levels:
        level_rows = rows.of_level(level)
        kernels, judged = top / "runs" / f"level{level}", top / "judged" / f"level{level}"
        kernels.mkdir(parents=True)
        judged.mkdir(parents=True)
        for row in level_rows:
            source = _source(run_dir, row, len(rows.rows))
            if source:
                name = f"level_{level}_problem_{row.problem}_sample_0_kernel.py"
                write_atomically(kernels / name, source)
        _write_json(
            judged / "eval_results.json", {str(r.problem): [_sample(r)] for r in level_rows}
        )
    timing = top / "timing"
    timing.mkdir(parents=True, exist_ok=True)
    for name, field in TIMINGS.items():
        times = _times(rows, field)
        if any(times.values()):
            _write_json(timing / f"{name}.json", times)


def _source(run_dir: Path, row: ProblemRow, tasks: int) -> str:
    """Return the winner's file, or the source of a correct candidate that is not faster."""
    if not row.is_solved:
        return ""
    best = run_results.best_file(run_dir, row.task, tasks)
    if best.exists():
        return best.read_text(encoding="utf-8")
    reader = RunReader(run_dir)
    try:
        return reader.source_of(row.task, row.node) if row.node is not None else ""
    finally:
        reader.close()


def _sample(row: ProblemRow) -> dict[str, object]:
    runtime = _ms(row.best_us) if row.is_solved else None
    return {
        "sample_id": 0,
        "compiled": row.is_solved,
        "correctness": row.is_solved,
        "metadata": {"state": row.state, "reason": row.reason},
        "runtime": -1.0 if runtime is None else runtime,
        "runtime_stats": {} if runtime is None else {"mean": runtime},
    }


def _times(rows: RunRows, field: str) -> dict[str, dict[str, object]]:
    times: dict[str, dict[str, object]] = {f"level{level}": {} for level in rows.levels}
    for row in rows.rows:
        us: float | None = getattr(row, field)
        if us is not None:
            file_name = f"{row.problem}_{row.name}.py"
            times[f"level{row.level}"][file_name] = {"mean": _ms(us), "hardware": rows.hardware}
    return times


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1000


def _write_json(path: Path, value: object) -> None:
    write_atomically(
        path, msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
    )
