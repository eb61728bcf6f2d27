"""What a page of results says about the runs behind it, and the command that repeats them.

A description names the device, what answered, how candidates were judged, when, and what a reader
can't conclude.  It shows no path and no address: both are of the machine that ran it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from actors.commands import typed_command
from actors.supervisor.cli.setting_options import OPTIONS
from actors.supervisor.reporting.run_data import formatting
from actors.supervisor.reporting.run_data.run_reader import RunReader
from actors.supervisor.reporting.run_data.snapshot import Snapshot, TaskState
from protocol import settings as settings_file
from protocol.prices import Price
from protocol.settings import Settings
from protocol.values import Value
from scripts.tables.problems import origin_of
from scripts.tables.result_rows import short_model

# Settings of the machine that ran it, which change no result; prices have a line of their own.
OF_ONE_MACHINE = (
    *("base_url", "prices", "at_once", "listen", "launch", "max_minutes", "max_cost"),
    *("planners", "coders", "debuggers", "evaluators", "tasks_at_once", "min_sandbox", "tasks"),
)
# A new run has other defaults than an old file, or chooses by what the machine has.
ALWAYS_NAMED = ("prompts", "precheck", "model", "device", "rules.baselines")
TF32 = "TF32 in the reference: "
TOLERANCE = (
    "error of each element against a float64 run ≤ max(8 × eager's own, 1e-4 for float32 or 1e-2"
    " for halves) × (|element| + RMS of the output), on at least three draws of the task's inputs"
    " and on shifted, scaled and sparse ones"
)


class RunDescription(Value, frozen=True, kw_only=True):
    """What is said of one run."""

    settings: Settings
    devices: tuple[str, ...]  # fingerprints of the references'; of the run's device if none is
    models: tuple[str, ...]  # that answered, as stored with the calls
    judged_at: tuple[float, float] | None  # first and last verdict, seconds since 1970
    tf32: tuple[str, ...]  # what the references use
    compiled: int  # tasks with a time of torch.compile
    autotuned: int  # likewise of max-autotune
    tasks: int


def describe(run_dir: Path, reader: RunReader, snapshot: Snapshot) -> RunDescription:
    """Return what is known of a run."""
    settings = settings_file.read(run_dir)
    references = [task.reference for task in snapshot.tasks if task.reference is not None]
    devices = sorted({one.device.fingerprint for one in references if one.device.fingerprint})
    times = [node.at for task in snapshot.tasks for node in task.attempts]
    return RunDescription(
        settings=settings,
        devices=tuple(devices) or (settings.device,),
        models=tuple(map(short_model, reader.models_that_answered())),
        judged_at=(min(times), max(times)) if times else None,
        tf32=tuple(sorted({line for task in snapshot.tasks for line in _tf32_lines(task)})),
        compiled=sum(one.compile_us is not None for one in references),
        autotuned=sum(one.max_autotune_us is not None for one in references),
        tasks=len(settings.tasks),
    )


def read_description(run_dir: Path) -> RunDescription:
    """Return what is known of a stored run."""
    reader = RunReader(run_dir)
    try:
        return describe(run_dir, reader, reader.poll() or Snapshot())
    finally:
        reader.close()


def _tf32_lines(task: TaskState) -> list[str]:
    facts = task.reference.facts if task.reference is not None else None
    lines = facts.rule_lines if facts is not None else ()
    return [line.removeprefix(TF32).rstrip(".") for line in lines if line.startswith(TF32)]


def description_lines(
    runs: Sequence[RunDescription], command: str, answered_by: str = "", commit: str = ""
) -> list[str]:
    """Return the lines of runs that differ in nothing but what is compared; Markdown items."""
    first = runs[0].settings
    models = _distinct(name for one in runs for name in one.models) or [short_model(first.model)]
    server = " through a server of the user's (--base-url)" if first.base_url else ""
    answered = f": {answered_by}" if answered_by else ""
    device, *others = judging_lines(runs, command, commit)
    line = f"- Answered by: model {', '.join(models)}{server}{answered}{_prices(runs)}"
    return [device, line, *others]


def judging_lines(runs: Sequence[RunDescription], command: str, commit: str = "") -> list[str]:
    """Return the lines about the judge: device, day, rules, baselines, and the command again."""
    first = runs[0].settings
    devices = _distinct(device for one in runs for device in one.devices)
    lines = [
        f"Device: {'; or '.join(devices)}; backend {_named(runs, 'backend')}",
        f"Judged: {_dates(runs)}, by commit {commit or 'unknown: a run stores none (--commit)'}",
        f"Correct: {TOLERANCE}; precision {_named(runs, 'rules.precision')}{_tf32(runs)}",
        f"torch.compile: {_compiled(runs)}",
        f"Again: `{command}`{_origin_note(command, first)}",
    ]
    return [f"- {line}" for line in lines]


def repeat_command(settings: Settings) -> str:
    """Return the command of a run like this one, with the settings that are not the default."""
    words = _task_words(settings.tasks)
    default = Settings()
    for option in OPTIONS:
        if option.setting in OF_ONE_MACHINE:
            continue
        value = _value(settings, option.setting)
        if value != _value(default, option.setting) or option.setting in ALWAYS_NAMED:
            text = short_model(value) if isinstance(value, str) else f"{value:g}"
            words += [option.flag, text]
    if settings.rules.require_custom_kernel:
        words.append("--require-custom-kernel")
    command = typed_command("kernelbench" if words[0] == "--root" else "")
    return f"{command} {shlex.join(words)}"


def _task_words(tasks: Sequence[str]) -> list[str]:
    """Return the flags that name the tasks; problems of one level are KernelBench's command's."""
    origins = [origin_of(name) for name in tasks]
    found = [one for one in origins if one is not None]
    if len(found) < len(tasks) or len({one.level for one in found}) != 1:
        return [word for name in tasks for word in ("--task", f"{name}.py")]
    numbers = ",".join(str(one.number) for one in found)
    return ["--root", "CHECKOUT", "--level", str(found[0].level), "--problems", numbers]


def _origin_note(command: str, settings: Settings) -> str:
    """Return where the files of KernelBench's problems are; "" where the command names none."""
    named = "--task" in command and any(origin_of(name) is not None for name in settings.tasks)
    return " (levelN_NAME.py is KernelBench's levelN/NAME.py)" if named else ""


def _value(settings: Settings, name: str) -> Any:  # one of many fields, each of its own type
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _named(runs: Sequence[RunDescription], setting: str) -> str:
    """Return the values of a setting in the runs, which may vary it."""
    return " or ".join(_distinct(str(_value(one.settings, setting)) for one in runs))


def _prices(runs: Sequence[RunDescription]) -> str:
    """Return what a million tokens cost, of each model that has a price."""
    prices = {name: price for one in runs for name, price in one.settings.prices.items()}
    found = _distinct(_price(price) for _, price in sorted(prices.items()))
    return f"; {', '.join(found)} a million tokens" if found else ""


def _price(price: Price) -> str:
    return f"{price.input:g} USD in, {price.output:g} USD out"


def _dates(runs: Sequence[RunDescription]) -> str:
    times = [at for one in runs if one.judged_at is not None for at in one.judged_at]
    days = sorted({f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" for at in times})
    return f"{' to '.join(dict.fromkeys((days[0], days[-1])))} (UTC)" if days else "nothing yet"


def _tf32(runs: Sequence[RunDescription]) -> str:
    found = _distinct(line for one in runs for line in one.tf32)
    return f"; TF32 in eager: {' / '.join(found)}" if found else ""


def _compiled(runs: Sequence[RunDescription]) -> str:
    tasks = runs[0].tasks
    compiled = max(one.compiled for one in runs)
    autotuned = max(one.autotuned for one in runs)
    if compiled == autotuned == 0 and runs[0].settings.rules.baselines == "eager":
        return "not measured (--baselines all asks for it)"
    text = f"measured for {compiled} of {tasks} problems, max-autotune for {autotuned}"
    if min(compiled, autotuned) < tasks:
        text += "; an evaluator measures what is missing while its device is idle"
    return text


def search_text(settings: Settings) -> str:
    """Return the search in a line: strategy, budget, requests."""
    knowledge = f", knowledge {settings.knowledge}" if settings.prompts == "compact" else ""
    return (
        f"{formatting.search_line(settings)}, {settings.search.budget} attempts a problem,"
        f" requests {settings.prompts}{knowledge}, mended before judged: {settings.precheck}"
    )
