"""The settings of a run: flags over environment over `stark.toml` over defaults.

This file also chooses the model, says why, looks up its price, and refuses what could never run.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from actors.cli import UsageError
from actors.supervisor.cli import flags
from actors.supervisor.cli.flags import Arguments
from actors.supervisor.cli.setting_options import OPTIONS
from actors.supervisor.processes import launcher_client
from protocol import prices
from protocol.api_key import api_key_variable
from protocol.settings import (
    COMPUTED_MODELS,
    DEFAULT_PROMPTS,
    FILE_NAME,
    LEDGER_STRATEGIES,
    MAX_IN_FLIGHT,
    POLICIES,
    PROMPT_STYLES,
    STRATEGIES,
    TREE_SEARCH_STRATEGIES,
    Precheck,
    Settings,
)
from protocol.user_files import read_text
from protocol.values import AGENT_ROLES, BACKEND_OF, Role

# This model takes the temperatures of the method (0.8 to plan, 0.1 to code); newer models refuse
# them.  Of the models that take them it is the nearest to the paper's (Claude Sonnet 4, retired).
DEFAULT_CLAUDE_MODEL = "claude-sonnet-4-6"
ATTEMPTS_AHEAD = 3  # expansions in flight for each card
MAX_OPEN_TASKS = 4  # open tasks for each evaluator, while models think
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(\w+)`")  # msgspec's words
# Settings of one run only: not inherited from a stark.toml that was copied from it.
NOT_INHERITED = ("tasks", "model_reason")
# A resumed run may have other processes, budget and limits, but stays the same search.
CHANGEABLE_ON_RESUME = (
    *("search.budget", "max_cost", "max_minutes", "min_sandbox", "listen", "until_idle"),
    "first_looks",
    *("evaluators", "planners", "coders", "debuggers", "tasks_at_once"),
    *("prices", "at_once", "base_url"),  # where a model is found, not which model
    *("launch", "ask_person"),
)


def new_run_settings(
    arguments: Arguments,
    task_names: tuple[str, ...],
    environ: Mapping[str, str],
    gpus: tuple[str, ...],
) -> Settings:
    """Return the settings of a new run; raise UsageError with one line."""
    raw = _from_file(Path(FILE_NAME))
    for layer in (flags.settings_from_environment(environ), arguments.settings):
        for field, value in layer.items():
            _set(raw, field, value)
    raw["tasks"] = task_names
    _set_model(raw, environ)
    raw.setdefault("prompts", DEFAULT_PROMPTS)
    raw.setdefault("precheck", _default_precheck(raw))
    raw.setdefault("device", "cuda" if gpus else "cpu")
    cuda = raw["device"] == "cuda"
    raw.setdefault("backend", BACKEND_OF["cuda" if cuda else "cpu"])
    raw.setdefault("evaluators", max(1, len(gpus)) if cuda else 1)
    # On a card, torch.compile takes a minute for each task, once; its baseline is worth that.
    raw.setdefault("rules", {}).setdefault("baselines", "all" if cuda else "eager")
    launched = launcher_client.max_evaluators(str(raw.get("launch", "")))
    _set_concurrency(
        raw, raw["evaluators"] + launched, len(task_names), ATTEMPTS_AHEAD if cuda else 1
    )
    settings = _convert(raw, "the settings")
    require_workers(settings)
    _refuse_backend(settings)
    _refuse_unused_by_paper(settings)
    _refuse_unused_policy(arguments, settings)
    _refuse_unused_prices(arguments, settings)
    return settings


def resumed_run_settings(old: Settings, arguments: Arguments) -> Settings:
    """Return the settings of a resumed run; raise UsageError when a flag contradicts the run."""
    _refuse_unused_policy(arguments, old)
    raw: dict[str, Any] = msgspec.to_builtins(old)
    raw |= {"until_idle": False, "first_looks": False}  # valid for one start only
    options = {option.setting: option.flag for option in OPTIONS}
    for field, value in arguments.settings.items():
        flag = options.get(field, "--" + field.rpartition(".")[2].replace("_", "-"))
        before = _get(old, field)
        is_fixed = field not in CHANGEABLE_ON_RESUME and not _is_moved_script(before, value)
        if is_fixed and value != before:
            given = flag if value is True else f"{flag} {value}"
            has = "none" if before is False or before in ("", None) else before
            raise UsageError(
                f"{given} contradicts the run, which has {has}: leave it out, or start a new run"
            )
        if field == "search.budget" and old.search.budget > int(str(value)):
            raise UsageError(
                f"--budget {value} is less than the run's {before}: a resumed run can only be"
                " extended"
            )
        _set(raw, field, value)
    settings = _convert(raw, "the settings")
    require_workers(settings)
    _refuse_unused_prices(arguments, settings)
    return settings


def _is_moved_script(before: object, now: object) -> bool:
    """Whether a script is found elsewhere now, as where a run's folder and its script moved."""
    names = [str(model) for model in (before, now)]
    return (
        all(name.startswith("script:") for name in names)
        and len({Path(name).name for name in names}) == 1
    )


def require_workers(settings: Settings) -> None:
    """Raise UsageError for a run that lacks the processes of a role."""
    if settings.launch and not settings.public_address:
        raise UsageError(
            "--launch needs --listen tcp://ADDR:PORT: an address of this machine where its jobs"
            " connect"
        )
    elsewhere = settings.public_address or settings.ends_when_idle
    missing = [role for role in settings.required_roles if not settings.process_count(role)]
    if missing and not elsewhere:
        raise UsageError(
            f"--{missing[0]}s 0: no process would do their work: give --{missing[0]}s N, or"
            " --listen tcp://ADDR:PORT, where other machines join, or --until-idle"
        )


def paid_models(settings: Settings) -> list[str]:
    """Return the run's models that cost money, or may."""
    named = dict.fromkeys(settings.model_of(role) for role in AGENT_ROLES)
    return [model for model in named if not model.startswith(COMPUTED_MODELS)]


def with_prices(settings: Settings) -> Settings:
    """Return the settings with their models' prices; raise UsageError where a cap needs one more.

    `--prices FILE` and `[prices.NAME]` in a stark.toml win over the list of this version.  The
    run's own stark.toml then holds the prices with which the run counts.
    """
    table = {**prices.listed_prices(), **settings.prices}
    found = {}
    for model in paid_models(settings):
        price = prices.price_of(model, table)
        if price is not None:
            found[model] = price
        elif settings.max_cost is not None:
            raise UsageError(
                f"--max-cost needs the price of {model}: put a table [{model!r}] with input and"
                " output, US dollars for a million tokens, into a file and add --prices FILE"
            )
    return msgspec.structs.replace(settings, prices=found)


def _refuse_unused_policy(arguments: Arguments, settings: Settings) -> None:
    """Raise UsageError for --policy where the strategy asks no policy: it would have no effect."""
    if "policy" in arguments.settings and settings.requested_policy is None:
        raise UsageError(
            f"--policy {arguments.settings['policy']}: --strategy {settings.strategy} asks no"
            f" policy ({' and '.join(TREE_SEARCH_STRATEGIES)} do): leave it out"
        )


def _refuse_backend(settings: Settings) -> None:
    """Raise UsageError for a backend that the device or the prompts can't serve."""
    if settings.backend in ("cuda", "triton", "mixed") and settings.device != "cuda":
        raise UsageError(
            f"--backend {settings.backend} needs --device cuda: this run has {settings.device}"
        )
    if settings.backend == "mixed" and settings.prompts == "paper":
        raise UsageError(
            "--backend mixed needs --prompts compact: the paper's prompts describe one language"
        )


def _default_precheck(raw: Mapping[str, Any]) -> Precheck:
    """Return whether candidates that fail are mended: by models, in this project's own method.

    The paper's requests and the strategies that it compares have one answer an attempt.  A computed
    model answers the same work with the same text.
    """
    models = [raw.get(f"{role}_model") or raw["model"] for role in (Role.CODER, Role.DEBUGGER)]
    is_computed = all(str(model).startswith(COMPUTED_MODELS) for model in models)
    is_own_method = (
        raw["prompts"] == "compact" and raw.get("strategy", "stark") in LEDGER_STRATEGIES
    )
    return "on" if is_own_method and not is_computed else "off"


def _refuse_unused_by_paper(settings: Settings) -> None:
    """Raise UsageError for a setting of the compact requests under the paper's, which ignore it."""
    if settings.prompts != "paper":
        return
    if settings.precheck == "on":
        raise UsageError(
            "--precheck on needs --prompts compact: an attempt of the paper's has one answer"
        )
    default = Settings()
    for name in ("knowledge", "lessons"):
        value = getattr(settings, name)
        if value != getattr(default, name):
            raise UsageError(
                f"--{name} {value} needs --prompts compact: the paper's requests show none of it"
            )


def _refuse_unused_prices(arguments: Arguments, settings: Settings) -> None:
    """Raise UsageError for --prices without any of the run's models: a name in it is misspelt."""
    price_table = arguments.settings.get("prices")
    if not isinstance(price_table, dict) or not price_table:
        return
    table = {model: settings.prices[model] for model in price_table}
    paid = paid_models(settings)
    if paid and not any(prices.price_of(model, table) for model in paid):
        raise UsageError(
            f"--prices: none of {', '.join(table)} is a model of this run, which pays for"
            f" {', '.join(paid)}"
        )


def _set_concurrency(raw: dict[str, Any], evaluators: int, tasks: int, ahead: int) -> None:
    """Set how many tasks are open at once, and how many expansions of each are in flight.

    The product keeps the evaluators busy; on a card the next candidates are built while one is
    measured.  Many tasks with one expansion each grow better trees than one task with many.  With a
    model that answers at once, one task fills an evaluator and stays open until it is done; on a
    card a task of one attempt does not, since the card waits for its build.
    """
    answers_at_once = str(raw["model"]).startswith(COMPUTED_MODELS)
    is_filled = ahead == 1 or raw.get("search", {}).get("budget") != 1
    open_each = (1 if is_filled else 2) if answers_at_once else MAX_OPEN_TASKS
    raw.setdefault("tasks_at_once", evaluators * open_each)
    open_tasks = max(1, min(tasks, raw["tasks_at_once"] or tasks))
    raw.setdefault("search", {}).setdefault(
        "in_flight", min(MAX_IN_FLIGHT, max(1, -(-evaluators * ahead // open_tasks)))
    )


def _set_model(raw: dict[str, Any], environ: Mapping[str, str]) -> None:
    if raw.get("model"):
        raw["model_reason"] = "as asked"
    elif raw.get("base_url"):
        raise UsageError("--base-url needs --model NAME: the name that this server knows")
    elif variable := api_key_variable(environ):
        raw["model"] = DEFAULT_CLAUDE_MODEL
        raw["model_reason"] = f"{variable} is set"
    else:
        raw["model"] = "recipes"
        raw["model_reason"] = "a rule book, no LLM: ANTHROPIC_API_KEY is not set"


def _from_file(path: Path) -> dict[str, Any]:
    try:
        raw = tomllib.loads(read_text(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"can't use {path} in this folder: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"can't use {path} in this folder: {error}") from error
    _convert(raw, f"{path} in this folder")
    return {field: value for field, value in raw.items() if field not in NOT_INHERITED}


def _convert(raw: dict[str, Any], what: str) -> Settings:
    known: dict[str, tuple[str, ...]] = {
        "strategy": STRATEGIES,
        "policy": POLICIES,
        "prompts": PROMPT_STYLES,
    }
    for field, names in known.items():
        name = raw.get(field, names[0])
        if isinstance(name, str) and name not in names:
            raise UsageError(f"{what}: {field} {name!r} is none of {', '.join(names)}")
    try:
        return msgspec.convert(raw, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{what}: {_reason(error)}") from error


def _reason(error: msgspec.ValidationError) -> str:
    """Return what is wrong with a table of settings; of an unknown name, which was meant."""
    unknown = UNKNOWN_FIELD.match(str(error))
    if unknown is None:
        return str(error)
    name, tables = unknown[1], _table_of_fields()
    near = difflib.get_close_matches(name, tables, n=1, cutoff=flags.MIN_SIMILARITY)
    if not near:
        return f"{name} is not a setting"
    table = tables[near[0]]
    where = f"in the table [{table}]" if table else "above all tables"
    if near[0] == name:
        return f"the setting {name} belongs {where}"
    return f"{name} is not a setting: did you mean {near[0]} {where}?"


def _table_of_fields() -> dict[str, str]:
    """Return the table of `stark.toml` that each setting is in; "" above the tables."""
    tables: dict[str, str] = {}
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            inner = msgspec.structs.fields(field.type)
            tables |= {setting.name: field.name for setting in inner}
        tables[field.name] = ""
    return tables


def _set(raw: dict[str, Any], field: str, value: object) -> None:
    table, _, name = field.rpartition(".")
    target = raw.setdefault(table, {}) if table else raw
    # New prices of some models leave the prices of the others as they are.
    target[name] = {**target.get(name, {}), **value} if isinstance(value, dict) else value


def _get(settings: Settings, field: str) -> object:
    value: object = settings
    for name in field.split("."):
        value = getattr(value, name)
    return value
