"""From a name to a model: `recipes`, `script:FILE`, `replay:RUN`, or one of the Messages API."""

from __future__ import annotations

from pathlib import Path

from actors.agents.models import script
from actors.agents.models.model import Model
from actors.agents.models.recipe import RecipeModel
from actors.agents.models.replay import ReplayModel
from protocol.prices import Price

KNOWN = "recipes, script:FILE, replay:RUN, or the name of a Claude model (any name with --base-url)"


class UnknownModel(ValueError):
    """No model has that name; the message is one line for a person."""


def choose(
    name: str,
    *,
    base_url: str = "",
    api_key: str = "",
    price: Price | None = None,
    at_once: int = 4,
) -> Model:
    """Return the model called `name`; raise `UnknownModel` with one line where there is none."""
    if name == "recipes":
        return RecipeModel()
    kind, colon, rest = name.partition(":")
    if kind == "script" and colon:
        if not rest:
            raise UnknownModel("Unknown model 'script:': name the file, as in script:replies.jsonl")
        try:
            return script.ScriptModel(name, script.read(Path(rest)))
        except ValueError as error:
            raise UnknownModel(f"Unknown model {name!r}: {error}") from error
    if kind == "replay" and colon:
        if not rest:
            raise UnknownModel("Unknown model 'replay:': name the run folder, as in replay:runs/x")
        try:
            return ReplayModel(name, Path(rest))
        except ValueError as error:
            raise UnknownModel(f"Unknown model {name!r}: {error}") from error
    if not name or not (base_url or name.startswith("claude-")):
        raise UnknownModel(f"Unknown model {name!r}: expected {KNOWN}")
    from actors.agents.models.claude import Claude  # with the SDK's HTTP client: only when asked

    return Claude(name, api_key=api_key, base_url=base_url, price=price, at_once=at_once)
