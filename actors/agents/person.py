"""A person who answers instead of the model: `--ask-person SECONDS`.

Each request is first a file in `RUN/questions/` (`protocol/questions.py`).  Where its answer comes
in time, it is the reply of this call, stored and judged like a model's.  Otherwise the model is
asked, as without the flag.  The time counts from the question's first appearance: an agent that is
started again does not begin it anew, and finds an answer that came while it was dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from actors.agents.requests.request import Request
from actors.agents.retry import POLL_S, WorkCancelledError
from actors.work_context import WorkContext
from protocol import questions
from protocol.values import Call, request_key

ANSWER_GRACE_S = 10.0  # for an answer that is being written when the time is over


class Person:
    """Asks a person, and waits for the answer."""

    def __init__(
        self,
        run_dir: Path,
        wait_s: float,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`clock`: wall clock, as the times of files are."""
        self._run_dir = run_dir
        self._wait_s = wait_s
        self._clock = clock
        self._sleep = sleep

    def ask(self, request: Request, context: WorkContext) -> Call | None:
        """Return a person's reply; None when there is none in time.

        Raises `WorkCancelledError` when the work is to stop.
        """
        text = request.render()
        name = questions.question_name(request.role, request.attempt, request_key(text))
        try:
            asked_at = questions.ask(self._run_dir, name, _question(name, text))
        except OSError as error:
            context.set_activity(f"no question to a person ({error.strerror})")
            return None
        context.set_activity(f"waiting for a person: {questions.QUESTIONS}/{name}.md")
        while True:
            reply = questions.read_answer(self._run_dir, name, self._clock())
            over_s = self._clock() - asked_at - self._wait_s
            if reply is not None and reply != questions.NOT_ANSWERED:
                return Call(
                    model=questions.PERSON,
                    request=text,
                    reply=reply,
                    usd=0.0,
                    seconds=max(0.0, self._clock() - asked_at),
                )
            if reply is not None or over_s > ANSWER_GRACE_S:
                return None
            if context.is_revoked():
                raise WorkCancelledError
            if over_s > 0 and questions.answer(self._run_dir, name, questions.NOT_ANSWERED):
                return None
            self._sleep(POLL_S)


def _question(name: str, text: str) -> str:
    return (
        f"<!-- Question {name}.  Answer with `scripts/steer.py RUN answer {name} FILE`,\n"
        f"or write {name}.answer.md next to this file, in the form that the text asks for.\n"
        f"-->\n\n{text}"
    )
