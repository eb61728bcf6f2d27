"""One agent process: `python -m actors.agents --role planner --connect ADDR --slot planner-0`.

The supervisor starts it in the run folder.  Exit status 2, with one line, for settings or a
model that can't be used; otherwise the status of the actor's loop.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from actors.actor import run_actor
from actors.agents.coder import Coder
from actors.agents.debugger import Debugger
from actors.agents.model_client import ModelClient
from actors.agents.models.registry import make_model
from actors.agents.person import Person
from actors.agents.planner import Planner
from actors.agents.reply_spool import ReplySpool
from actors.agents.requests.knowledge import RequestKnowledge
from actors.cli import OneLineParser
from actors.exit_status import ExitStatus
from actors.identity import add_identity_arguments, identity_from
from actors.work_context import Worker
from protocol import settings
from protocol.api_key import api_key_variable
from protocol.prices import price_of
from protocol.values import AGENT_ROLES, Role

WORKERS: dict[
    Role, Callable[[ModelClient, int, settings.PromptStyle, RequestKnowledge | None], Worker]
] = {
    Role.PLANNER: Planner,
    Role.CODER: Coder,
    Role.DEBUGGER: Debugger,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one agent until the coordinator or a signal ends it; return the exit status."""
    parser = OneLineParser(prog="python -m actors.agents", description=__doc__)
    parser.add_argument("--role", required=True, choices=[str(role) for role in AGENT_ROLES])
    parser.add_argument("--config", type=Path, help="settings (stark.toml in the run folder)")
    add_identity_arguments(parser)
    parsed = parser.parse_args(arguments)
    try:
        worker = make_worker(Role(parsed.role), _settings(parsed), parsed.run_dir)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return ExitStatus.USAGE
    return run_actor(worker, identity_from(parsed))


def make_worker(role: Role, run_settings: settings.Settings, run_dir: Path) -> Worker:
    """Return the worker for `role`; raise ValueError with one line when its model is unknown."""
    model = make_model(
        run_settings.model_of(role),
        base_url=run_settings.base_url,
        api_key=_key(),
        price=price_of(run_settings.model_of(role), run_settings.prices),
        at_once=run_settings.at_once,
    )
    model_client = ModelClient(
        model,
        ReplySpool(run_dir / "spool"),
        person=Person(run_dir, run_settings.ask_person) if run_settings.ask_person else None,
        effort=run_settings.effort_of(role),
        temperature=run_settings.temperature_of(role),
    )
    knowledge = RequestKnowledge(
        kind=run_settings.knowledge, has_lessons=run_settings.lessons == "accepted"
    )
    return WORKERS[role](model_client, run_settings.max_tokens, run_settings.prompts, knowledge)


def _key() -> str:
    """Return the key, else the token, else "": both are sent in the same header."""
    return os.environ.get(api_key_variable(os.environ), "").strip()


def _settings(parsed: argparse.Namespace) -> settings.Settings:
    if parsed.config is None:
        return settings.read(parsed.run_dir)
    try:
        return settings.parse(parsed.config.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"can't read {parsed.config}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{parsed.config}: {error}") from error


if __name__ == "__main__":
    raise SystemExit(main())
