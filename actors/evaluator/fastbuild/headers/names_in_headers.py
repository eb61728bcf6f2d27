"""The names that the headers of one light build declare, to compare an error's names with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from actors.evaluator.fastbuild.headers.declared_names import names_declared_in
from actors.evaluator.fastbuild.request.candidate_source import CandidateSource
from actors.evaluator.fastbuild.request.compiler_process import Deadline, run_compiler

_MARKER = re.compile(r'^# \d+ "([^"]*)"')
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)


def names_in_headers(
    argv: Sequence[str], source: CandidateSource, deadline: Deadline, text: str = ""
) -> frozenset[str]:
    """Return the names that the headers of `source` declare or define, its own ones left out.

    `argv` compiles it, without -c and -o.  `text`: the preprocessed source, if it exists already.
    """
    folder = Path(source.path).parent
    with ThreadPoolExecutor(1) as pool:
        macros = pool.submit(run_compiler, [*argv, "-E", "-dM"], folder, deadline)
        text = text or run_compiler([*argv, "-E"], folder, deadline).output
        declared = names_declared_in(_lines_of_headers(text, source))
        return declared | frozenset(_DEFINED.findall(macros.result().output))


def _lines_of_headers(text: str, source: CandidateSource) -> str:
    """Return the lines of a preprocessed text that are not from the candidate's own files."""
    own = frozenset([source.path, *(each.path for each in source.headers)])
    in_candidate = False
    lines = []
    for line in text.splitlines():
        marker = _MARKER.match(line)
        if marker:
            in_candidate = _is_one_of(marker[1], own)
        elif not in_candidate:
            lines.append(line)
    return "\n".join(lines)


@lru_cache(maxsize=4096)
def _is_one_of(file: str, own: frozenset[str]) -> bool:
    return file in own or (len(own) > 1 and str(Path(file).resolve()) in own)
