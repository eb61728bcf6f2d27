"""report.md: where the model's time was, what was taken, and what each winner brought."""

from __future__ import annotations

from collections.abc import Iterator

from actors.adopt.check import Check, Trial
from actors.adopt.fit import Fit
from actors.adopt.look import Look, ms_text
from actors.adopt.stage_folder import ModelRecord, StageFolder
from actors.adopt.take import Take


def report_text(folder: StageFolder) -> str:
    """Return the report of a folder whose check has ended."""
    look = folder.read("look.json", Look, "adopt.py look")
    taken = folder.read("take.json", Take, "adopt.py take")
    fitted = folder.read("fit.json", Fit, "adopt.py fit")
    check = folder.read("check.json", Check, "adopt.py check")
    record = folder.read("model.json", ModelRecord, "adopt.py look")
    lines = [f"# {record.path.rpartition('/')[2]} on {look.device}", "", verdict_line(check), ""]
    lines += ["## Where the time was", "", f"A step took {ms_text(look.step_ms)}, eager.", ""]
    lines += ["| module | sites | share | in libraries | ceiling |", "|---|---|---|---|---|"]
    lines += [
        f"| {group.name} ({group.class_name}) | {len(group.sites)} | {group.share:.1%}"
        f" | {group.library_share:.1%} | {group.ceiling:.2f}× |"
        for group in look.groups[:12]
    ]
    lines += [f"| in no module | | {look.outside_share:.1%} | | |", ""]
    for regime in look.regimes:
        if regime.step_ms is not None:
            lines.append(f"Without a new kernel, {regime.name}: {ms_text(regime.step_ms)}.")
    lines += ["", "## What the winners brought", ""]
    lines += ["| winner | alone | together | calls | |", "|---|---|---|---|---|"]
    lines += [_trial_row(trial) for trial in check.trials]
    lines += [f"| {name} | | | | no winner was found |" for name in fitted.without]
    lines += ["", *_whole(check), ""]
    if taken.not_taken:
        lines += ["## Not taken", ""]
    lines += [f"- {each.name} (×{len(each.sites)}): {each.reason}" for each in taken.not_taken]
    return "\n".join(lines).rstrip() + "\n"


def verdict_line(check: Check) -> str:
    """Return the answer in one sentence."""
    if check.gain is None:
        reasons = {trial.reason for trial in check.trials}
        return f"Nothing is kept: {'; '.join(sorted(reasons)) or 'there was no winner'}."
    names = ", ".join(check.kept)
    if check.gain.low <= 1.0:
        return f"With {names} the step is not faster beyond noise: {check.gain.describe()}."
    return (
        f"With {names} a pass takes {ms_text(check.gain.after_ms)} instead of"
        f" {ms_text(check.gain.before_ms)}: {check.gain.describe()}."
    )


def _trial_row(trial: Trial) -> str:
    alone = trial.alone.describe() if trial.alone else ""
    together = trial.together.describe() if trial.together else ""
    calls = f"{trial.kernel_calls} of {trial.expected_calls}" if trial.expected_calls else ""
    word = "kept" if trial.kept else f"dropped: {trial.reason}"
    return f"| {trial.name} | {alone} | {together} | {calls} | {word} |"


def _whole(check: Check) -> Iterator[str]:
    """Yield lines about accuracy, memory, graphs and quality of the fitted model."""
    if check.accuracy is not None:
        found = check.accuracy
        yield (
            f"Largest error against {found.against}: original {found.original:.2g}, fitted"
            f" {found.fitted:.2g} of an output's largest value ({found.allowed:.2g} is allowed)."
        )
        if found.agreement is not None:
            yield f"The largest element of a row is the same in {found.agreement:.2%} of rows."
    if check.accuracy_problem:
        yield f"There is no float64 reference: {check.accuracy_problem}."
    if check.memory_after:
        yield f"Memory: {check.memory_before >> 20} MiB before, {check.memory_after >> 20} after."
    if check.graphs_before and check.graphs_after:
        yield (
            f"torch.compile sees {check.graphs_before.describe()} before,"
            f" {check.graphs_after.describe()} after."
        )
    for name, value in check.quality_before.items():
        after = check.quality_after.get(name)
        yield f"quality(): {name} {value:.6g} before" + (
            f", {after:.6g} after." if after is not None else "."
        )
