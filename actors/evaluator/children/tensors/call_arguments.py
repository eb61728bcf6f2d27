"""What `get_inputs()` returns, as the positional arguments of a module's call.  Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence


class CallArgumentsError(ValueError):
    """What `get_inputs()` returns can't be the arguments of a call: one line."""


def positional_inputs(made: object, forward: Callable[..., object]) -> list[object]:
    """Return what `get_inputs()` returns as positional arguments of `forward`.

    A list or a tuple has positional arguments, a dict has keywords, and a pair of a list (or a
    tuple) and a dict has both.  A parameter that is left out before a given one has its default.
    Raises CallArgumentsError.
    """
    args, keywords = _arguments(made)
    if not keywords:
        return list(args)
    parameters = [each for each in inspect.signature(forward).parameters.values()][1:]
    known = {each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}
    unknown = next((name for name in keywords if name not in known), None)
    if unknown is not None:
        raise CallArgumentsError(
            f"get_inputs() gives {unknown} by keyword, and Model.forward has no parameter of that "
            "name that can be given by position, too: name the parameters of forward"
        )
    inputs = list(args)
    for each in parameters[len(args) :]:
        if not keywords:
            break
        if each.name not in keywords and each.default is each.empty:
            raise CallArgumentsError(f"get_inputs() gives no {each.name}, and it has no default")
        inputs.append(keywords.pop(each.name, each.default))
    if keywords:
        raise CallArgumentsError(f"get_inputs() gives {next(iter(keywords))} twice")
    return inputs


def _arguments(made: object) -> tuple[Sequence[object], dict[str, object]]:
    if isinstance(made, dict):
        return (), dict(made)
    if (
        type(made) is tuple
        and len(made) == 2
        and isinstance(made[0], list | tuple)
        and isinstance(made[1], dict)
        and all(isinstance(key, str) for key in made[1])
    ):
        return made[0], dict(made[1])
    if isinstance(made, list | tuple):
        return made, {}
    raise CallArgumentsError(
        f"get_inputs() returns a {type(made).__name__}, expected a list, a dict of keywords or a "
        "pair of both"
    )
