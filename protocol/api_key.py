"""The variables of the environment that may hold the key for Anthropic's API."""

from __future__ import annotations

from collections.abc import Mapping

API_KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


def api_key_variable(environ: Mapping[str, str]) -> str:
    """Return the name of the first variable that is set; "" when there is no key."""
    found = (name for name in API_KEY_VARIABLES if environ.get(name, "").strip())
    return next(found, "")
