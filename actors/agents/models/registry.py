"""From a name to a model: `recipes`, `script:FILE`, `replay:RUN`, or one of the Messages API."""

from __future__ import annotations

import time
from pathlib import Path

from actors.agents.models import script_model
from actors.agents.models.model import Model
from actors.agents.models.replay_model import ReplayModel
from actors.agents.requests.request import Request
from protocol.prices import Price
from protocol.values import Call

KNOWN_MODELS = (
    "recipes, script:FILE, replay:RUN, or the name of a Claude model (any name with --base-url)"
)


class UnknownModelError(ValueError):
    """No model has that name; the message is one line for the user."""


class RecipeModel:
    """The rule book `actors.agents.recipes` as a model: a pure function of the work, at no cost."""

    name = "recipes"
    at_once = 1  # it computes: several at once would share the same core

    def reply(self, request: Request) -> Call:
        """Return the rule book's answer."""
        from actors.agents import recipes

        started = time.monotonic()
        text = recipes.answer(request.work)
        return Call(
            model=self.name,
            request=request.render(),
            reply=text,
            usd=0.0,
            seconds=time.monotonic() - started,
        )


def make_model(
    name: str,
    *,
    base_url: str = "",
    api_key: str = "",
    price: Price | None = None,
    at_once: int = 4,
) -> Model:
    """Return the model called `name`; raise `UnknownModelError` with one line if it is unknown."""
    if name == "recipes":
        return RecipeModel()
    kind, colon, rest = name.partition(":")
    if kind == "script" and colon:
        if not rest:
            raise UnknownModelError(
                "Unknown model 'script:': name the file, as in script:replies.jsonl"
            )
        try:
            return script_model.ScriptModel(name, script_model.read_script(Path(rest)))
        except ValueError as error:
            raise UnknownModelError(f"Unknown model {name!r}: {error}") from error
    if kind == "replay" and colon:
        if not rest:
            raise UnknownModelError(
                "Unknown model 'replay:': name the run folder, as in replay:runs/x"
            )
        try:
            return ReplayModel(name, Path(rest))
        except ValueError as error:
            raise UnknownModelError(f"Unknown model {name!r}: {error}") from error
    if not name or not (base_url or name.startswith("claude-")):
        raise UnknownModelError(f"Unknown model {name!r}: expected {KNOWN_MODELS}")
    # Imports the SDK's HTTP client: only where Claude is asked.
    from actors.agents.models.claude import ClaudeModel

    return ClaudeModel(name, api_key=api_key, base_url=base_url, price=price, at_once=at_once)
