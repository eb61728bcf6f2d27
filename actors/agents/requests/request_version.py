"""The version of what writes requests: a digest of the prompts and of the code that fills them.

It is stored with each call, so that a request that can't be made again is told from one that is
written otherwise today.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import prompts
import protocol
from actors.agents import cards, requests

DIGITS = 16  # of the digest
SUFFIXES = (".md", ".py", ".json")


@cache
def request_version() -> str:
    """Return the digest; it changes with every text that requests are made of."""
    digest = hashlib.sha256()
    for package in (prompts, requests, cards, protocol):
        (folder,) = map(Path, package.__path__)
        for path in sorted(folder.rglob("*")):
            if path.suffix in SUFFIXES:
                digest.update(f"{path.relative_to(folder)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:DIGITS]
