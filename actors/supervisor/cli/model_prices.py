"""What a run's models cost, settled before anything starts: listed prices, and a person's own.

`--prices FILE` and `[prices.NAME]` in a stark.toml win over the list that came with this version.
The run's own stark.toml then holds the prices that it counts with.
"""

from __future__ import annotations

import msgspec

from actors.cli import UsageError
from protocol import prices
from protocol.settings import Settings
from protocol.values import AGENT_ROLES

FREE_MODELS = ("recipes", "script:", "replay:")  # nobody is paid for these


def paid_models(settings: Settings) -> list[str]:
    """Return the run's models that cost money, or may."""
    named = dict.fromkeys(settings.model_of(role) for role in AGENT_ROLES)
    return [model for model in named if not model.startswith(FREE_MODELS)]


def with_prices(settings: Settings) -> Settings:
    """Return the settings with its models' prices; raise UsageError where a cap needs one more."""
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
