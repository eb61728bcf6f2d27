"""What an error of the SDK means: wait, stop for the user, or make the request shorter."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import httpx2

from actors.agents.models.model import ModelBusyError, ModelDeniedError, RequestTooLongError

if TYPE_CHECKING:
    import anthropic

OUT_OF_CREDIT_PHRASES = ("credit balance", "spend limit", "billing")
TOO_LONG_PHRASES = (
    *("too long", "context window", "context length", "context size", "context_length"),
    *("context limit", "contextwindow"),  # Anthropic on input and max_tokens; LiteLLM
)
# After these, no part of the request has reached a model.
NOT_SENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def error_text(error: anthropic.APIError) -> str:
    """Return the server's own sentence, in one line."""
    message = getattr(error, "api_message", None) or error.message
    return " ".join(str(message).split())[:300]


def classify(
    error: anthropic.APIError, model: str, *, begun: bool
) -> ModelBusyError | ModelDeniedError | RequestTooLongError:
    """Return what an SDK error means; `begun`: the error came in the middle of a reply."""
    import anthropic

    text = error_text(error)
    if not isinstance(error, anthropic.APIStatusError):
        slow = isinstance(error, anthropic.APITimeoutError)
        reason = "the server did not answer in time" if slow else "no connection to the server"
        return ModelBusyError(reason, may_be_paid=not isinstance(error.__cause__, NOT_SENT_ERRORS))
    status, kind = error.status_code, error.type or ""
    if status < 400 and kind == "invalid_request_error":
        status = 400  # the error came in a stream that had begun with 200
    if status in (401, 403) or kind in ("authentication_error", "permission_error"):
        return ModelDeniedError(
            f"the key was refused ({status}: {text}): set ANTHROPIC_API_KEY to a key that may "
            f"use {model}, then resume"
        )
    is_spent = any(phrase in text.lower() for phrase in OUT_OF_CREDIT_PHRASES) or "spend" in (
        error.error_code or ""
    )
    if status == 402 or kind == "billing_error" or is_spent:
        return ModelDeniedError(
            f"the account has no credit left ({status}: {text}): add some, then resume"
        )
    if status == 404:
        return ModelDeniedError(
            f"the server knows no {model} (404: {text}): choose another --model, or"
            " another --base-url: /v1/messages is put after it"
        )
    if status == 413 or (
        status in (400, 422) and any(phrase in text.lower() for phrase in TOO_LONG_PHRASES)
    ):
        return RequestTooLongError(f"{status}: {text}")
    if status in (408, 409, 429) or status >= 500 or status < 400:
        # Below 400: an error event in the middle of a stream that had begun well.
        reason = f"{status if status >= 400 else kind or 'error'}"
        return ModelBusyError(reason, retry_after_s=_retry_after(error), may_be_paid=begun)
    return ModelDeniedError(f"the server refuses our request ({status}: {text})")


def _retry_after(error: anthropic.APIStatusError) -> float:
    """Return the seconds that the server asks to wait: its header is a number or a date."""
    header = error.response.headers.get("retry-after", "0")
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return 0.0  # neither: our own backoff decides
