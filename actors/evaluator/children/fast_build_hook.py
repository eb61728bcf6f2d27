"""The short way of building, taken in the process that imports a candidate.

No wall: it runs beside the candidate.  What it reads is read-only there, what it writes lies in
the candidate's own folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from actors.evaluator.fastbuild import TOOLKITS_VARIABLE, install_hook, may_compile

UNLIMITED_S = 1e6  # the judge has its own


def install_fast_builds(source: str) -> None:
    """Build what importing `source` compiles the short way, where there is a toolkit for it."""
    toolkits = os.environ.get(TOOLKITS_VARIABLE)
    if toolkits and may_compile(source):
        install_hook(Path(toolkits), UNLIMITED_S)
