"""The recipes as a model: a rule book, no LLM, that answers in the same format at no cost."""

from __future__ import annotations

import time

from actors.agents.requests.request import Request
from protocol.values import Call


class RecipeModel:
    """Answers each request by the rules in `actors.agents.recipes`, a pure function of the work."""

    name = "recipes"
    at_once = 1  # it computes: more at once would only share the same core

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
