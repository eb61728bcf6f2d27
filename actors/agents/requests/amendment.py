"""The next turn of a conversation whose candidate failed: what the judge said, and the file.

Pure.  The file is shown as it stands, with numbers, so that an answer may be edits of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.agents.replies.folds import Fold
from actors.agents.replies.replies import fenced
from actors.agents.requests.attempts import untold_reason
from actors.agents.requests.error_line import first_error_line
from actors.agents.requests.facts import attempt_lines
from actors.agents.requests.numbered_source import numbered
from actors.agents.requests.prompting import REPLY_FORMATS, excerpt, fill
from actors.agents.requests.request import Request
from protocol.values import FailedCandidate

FOLDED_AGAIN = "`/* lines A-B */` stands for lines of a function that the answer did not change."


def amending_request(
    opening: Request, failed: FailedCandidate, folds: Sequence[Fold] = ()
) -> Request:
    """Return the conversation of `opening` with its answer, and what is to be mended.

    `folds`: lines of the candidate that are not shown again.
    """
    verdict = failed.verdict
    known = attempt_lines(verdict, opening.work.reference)
    log = excerpt(verdict.log)
    parts = [untold_reason(verdict, log), "\n".join(f"- {line}" for line in known)]
    parts.append(fenced(log, "text").strip() if log else "")
    parts.append(first_error_line(verdict.log, failed.source))
    text = fill(
        "compact/amend.md",
        outcome=verdict.verdict.replace("_", " "),
        result="\n\n".join(part for part in parts if part),
        folded=f"{FOLDED_AGAIN} " if folds else "",
        source=fenced(numbered(failed.source, folds=folds)).strip(),
        form=opening.form or REPLY_FORMATS[opening.role],
    )
    reply = failed.reply or f"## Candidate\n\n{fenced(failed.source)}"
    return opening.with_problem(reply, text.strip())
