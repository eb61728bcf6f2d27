"""What an error of the SDK means to us: wait, stop for a person, or make the request shorter."""

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
    *("context limit", "contextwindow"),  # Anthropic's of input and max_tokens; LiteLLM's
)
# Before these nothing of a request has reached a model.
NOT_SENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


def error_text(error: anthropic.APIError) -> str:
    """Return the server's own sentence, in one line."""
    said = getattr(error, "api_message", None) or error.message
    return " ".join(str(said).split())[:300]


def classify(
    error: anthropic.APIError, model: str, *, begun: bool
) -> ModelBusyError | ModelDeniedError | RequestTooLongError:
    """Return what an SDK error means; `begun`: it came in the middle of a reply."""
    import anthropic

    words = error_text(error)
    if not isinstance(error, anthropic.APIStatusError):
        slow = isinstance(error, anthropic.APITimeoutError)
        said = "the server did not answer in time" if slow else "no connection to the server"
        return ModelBusyError(said, may_be_paid=not isinstance(error.__cause__, NOT_SENT_ERRORS))
    status, kind = error.status_code, error.type or ""
    if status < 400 and kind == "invalid_request_error":
        status = 400  # said in a stream that had begun with 200
    if status in (401, 403) or kind in ("authentication_error", "permission_error"):
        return ModelDeniedError(
            f"the key was refused ({status}: {words}): set ANTHROPIC_API_KEY to a key that may "
            f"use {model}, then resume"
        )
    spent = any(word in words.lower() for word in OUT_OF_CREDIT_PHRASES) or "spend" in (
        error.error_code or ""
    )
    if status == 402 or kind == "billing_error" or spent:
        return ModelDeniedError(
            f"the account has no credit left ({status}: {words}): add some, then resume"
        )
    if status == 404:
        return ModelDeniedError(
            f"the server knows no {model} (404: {words}): choose another --model, or"
            " another --base-url: /v1/messages is put after it"
        )
    if status == 413 or (
        status in (400, 422) and any(word in words.lower() for word in TOO_LONG_PHRASES)
    ):
        return RequestTooLongError(f"{status}: {words}")
    if status in (408, 409, 429) or status >= 500 or status < 400:
        # Below 400: an error event in the middle of a stream that had begun well.
        said = f"{status if status >= 400 else kind or 'error'}"
        return ModelBusyError(said, retry_after_s=_retry_after(error), may_be_paid=begun)
    return ModelDeniedError(f"the server refuses our request ({status}: {words})")


def _retry_after(error: anthropic.APIStatusError) -> float:
    """Return the seconds that the server wants to be left alone: it says a number or a date."""
    said = error.response.headers.get("retry-after", "0")
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    except ValueError:
        return 0.0  # neither; our own waiting is long enough
