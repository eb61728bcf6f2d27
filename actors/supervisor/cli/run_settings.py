"""The settings of a new run: flags over environment over `stark.toml` over defaults.

Also says which model and why, and refuses what could never run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from actors.cli import UsageError
from actors.supervisor.cli import flags, model_prices
from actors.supervisor.cli.flags import OPTIONS, Arguments
from actors.supervisor.processes import launcher_client
from protocol import prices
from protocol.api_key import api_key_variable
from protocol.settings import (
    FILE_NAME,
    MAX_IN_FLIGHT,
    POLICIES,
    STRATEGIES,
    TREE_SEARCH_STRATEGIES,
    Settings,
)
from protocol.user_files import read_text
from protocol.values import BACKEND_OF

# Takes the temperatures that the method asks for (0.8 to plan, 0.1 to code): newer ones refuse.  Of
# those that do it is the nearest to the paper's own (Claude Sonnet 4, retired).
DEFAULT_CLAUDE_MODEL = "claude-sonnet-4-6"
ATTEMPTS_AHEAD = 3  # expansions under way for each card
MAX_OPEN_TASKS = 4  # tasks under way for each evaluator, while models think
UNLIMITED_MODELS = ("recipes", "script:", "replay:")  # models that answer at once
# Belongs to one run and is not taken over from a stark.toml that was copied from it.
NOT_INHERITED = ("tasks", "model_reason")
# A resumed run may have another fleet, budget and limits, but stays the same search.
CHANGEABLE_ON_RESUME = (
    *("search.budget", "max_cost", "max_minutes", "min_sandbox", "listen", "until_idle"),
    *("evaluators", "planners", "coders", "debuggers", "tasks_at_once"),
    *("prices", "at_once", "base_url"),  # where a model is found, not which
    "launch",
)


def new_run_settings(
    arguments: Arguments,
    task_names: tuple[str, ...],
    environ: Mapping[str, str],
    gpus: tuple[str, ...],
) -> Settings:
    """Return the settings of a run that begins; raise UsageError with one line."""
    told = _file(Path(FILE_NAME))
    for layer in (flags.settings_from_environment(environ), arguments.given):
        for field, value in layer.items():
            _set(told, field, value)
    told["tasks"] = task_names
    _set_model(told, environ)
    told.setdefault("device", "cuda" if gpus else "cpu")
    cuda = told["device"] == "cuda"
    told.setdefault("backend", BACKEND_OF["cuda" if cuda else "cpu"])
    told.setdefault("evaluators", max(1, len(gpus)) if cuda else 1)
    # A card's figures are worth the minute that torch.compile takes once for each task.
    told.setdefault("rules", {}).setdefault("baselines", "all" if cuda else "eager")
    lent = launcher_client.max_evaluators(str(told.get("launch", "")))
    _set_under_way(told, told["evaluators"] + lent, len(task_names), ATTEMPTS_AHEAD if cuda else 1)
    settings = _convert(told, "the settings")
    require_workers(settings)
    _refuse_unused_policy(arguments, settings)
    _refuse_prices_without_file(arguments, settings)
    return settings


def resumed_run_settings(old: Settings, arguments: Arguments) -> Settings:
    """Return the settings that a run goes on with; raise UsageError when a flag contradicts it."""
    _refuse_unused_policy(arguments, old)
    told: dict[str, Any] = msgspec.to_builtins(old)
    told["until_idle"] = False  # said anew at each start, or not at all
    options = {option.setting: option.flag for option in OPTIONS}
    for field, value in arguments.given.items():
        flag = options.get(field, "--" + field.rpartition(".")[2].replace("_", "-"))
        before = _get(old, field)
        if field not in CHANGEABLE_ON_RESUME and value != before:
            said = flag if value is True else f"{flag} {value}"
            has = "none" if before is False or before in ("", None) else before
            raise UsageError(
                f"{said} contradicts the run, which has {has}: leave it out, or start a new run"
            )
        if field == "search.budget" and old.search.budget > int(str(value)):
            raise UsageError(
                f"--budget {value} is less than the run's {before}: a resumed run can only be"
                " extended"
            )
        _set(told, field, value)
    settings = _convert(told, "the settings")
    require_workers(settings)
    _refuse_prices_without_file(arguments, settings)
    return settings


def require_workers(settings: Settings) -> None:
    """Raise UsageError for a run whose work nobody would do."""
    if settings.launch and not settings.public_address:
        raise UsageError(
            "--launch needs --listen tcp://ADDR:PORT: an address of this machine's where its jobs"
            " connect"
        )
    elsewhere = settings.public_address or settings.until_idle
    missing = [role for role in settings.required_roles if not settings.process_count(role)]
    if missing and not elsewhere:
        raise UsageError(
            f"--{missing[0]}s 0: nobody would do their work: give --{missing[0]}s N, or"
            " --listen tcp://ADDR:PORT, where other machines join, or --until-idle"
        )


def _refuse_unused_policy(arguments: Arguments, settings: Settings) -> None:
    """Raise UsageError for --policy where no policy chooses: it would change nothing, silently."""
    if "policy" in arguments.given and settings.requested_policy is None:
        raise UsageError(
            f"--policy {arguments.given['policy']}: --strategy {settings.strategy} asks no policy"
            f" ({' and '.join(TREE_SEARCH_STRATEGIES)} do): leave it out"
        )


def _refuse_prices_without_file(arguments: Arguments, settings: Settings) -> None:
    """Raise UsageError for --prices of other models alone: a name in it is misspelt."""
    given = arguments.given.get("prices")
    if not isinstance(given, dict) or not given:
        return
    table = {model: settings.prices[model] for model in given}
    paid = model_prices.paid_models(settings)
    if paid and not any(prices.price_of(model, table) for model in paid):
        raise UsageError(
            f"--prices: its {', '.join(table)} is no model of this run, which pays for"
            f" {', '.join(paid)}"
        )


def _set_under_way(told: dict[str, Any], evaluators: int, tasks: int, ahead: int) -> None:
    """Set how many tasks are open at once, and how many expansions of each are under way.

    Together as many as keep the evaluators busy; on a card the next candidates are built while one
    is measured.  Many tasks with one expansion each grow better trees than one with many; with a
    model that answers at once, a task fills an evaluator alone and is not left until it is done.
    """
    quick = str(told["model"]).startswith(UNLIMITED_MODELS)
    told.setdefault("tasks_at_once", evaluators * (1 if quick else MAX_OPEN_TASKS))
    open_tasks = max(1, min(tasks, told["tasks_at_once"] or tasks))
    told.setdefault("search", {}).setdefault(
        "in_flight", min(MAX_IN_FLIGHT, max(1, -(-evaluators * ahead // open_tasks)))
    )


def _set_model(told: dict[str, Any], environ: Mapping[str, str]) -> None:
    if told.get("model"):
        told["model_reason"] = "as asked"
    elif told.get("base_url"):
        raise UsageError("--base-url needs --model NAME: the name that this server knows")
    elif variable := api_key_variable(environ):
        told["model"] = DEFAULT_CLAUDE_MODEL
        told["model_reason"] = f"{variable} is set"
    else:
        told["model"] = "recipes"
        told["model_reason"] = "a rule book, no LLM: ANTHROPIC_API_KEY is not set"


def _file(path: Path) -> dict[str, Any]:
    try:
        told = tomllib.loads(read_text(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"can't use {path} in this folder: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"can't use {path} in this folder: {error}") from error
    _convert(told, f"{path} in this folder")
    return {field: value for field, value in told.items() if field not in NOT_INHERITED}


def _convert(told: dict[str, Any], what: str) -> Settings:
    known: dict[str, tuple[str, ...]] = {"strategy": STRATEGIES, "policy": POLICIES}
    for field, words in known.items():
        word = told.get(field, words[0])
        if isinstance(word, str) and word not in words:
            raise UsageError(f"{what}: {field} {word!r} is none of {', '.join(words)}")
    try:
        return msgspec.convert(told, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{what}: {error}") from error


def _set(told: dict[str, Any], field: str, value: object) -> None:
    table, _, name = field.rpartition(".")
    place = told.setdefault(table, {}) if table else told
    # A few models' prices leave the others' as they are.
    place[name] = {**place.get(name, {}), **value} if isinstance(value, dict) else value


def _get(settings: Settings, field: str) -> object:
    value: object = settings
    for name in field.split("."):
        value = getattr(value, name)
    return value
