"""The how-to pages: the edits of a page are applied to a copy of the tree, which is then run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parent.parent
COPIED = ("actors", "protocol", "prompts", "tests/coordinator", "tests/agents")
SINGLE = ("pyproject.toml", "supervisor.py", "tests/conftest.py")
# "`FILE`, above|below|instead of `MARK`" or "`FILE`, a new file": a block's first line.
BLOCK = re.compile(
    r"^(`{3,})[a-z]*\n(?:# |<!-- )`([^`\n]+)`, ([^\n]+?)(?: -->)?\n(.*?)^\1$", re.M | re.S
)
PLACE = re.compile(r"(above|below|instead of) `(.+)`")


class Edit(NamedTuple):
    """One block of a page: its file, its place there, and its text."""

    file: str
    place: str
    text: str


def edits_of(page: str) -> list[Edit]:
    text = (TOP / "docs" / page).read_text(encoding="utf-8")
    return [Edit(file, place, body) for _fence, file, place, body in BLOCK.findall(text)]


def copy_tree(folder: Path) -> Path:
    """Return a copy of the parts of the tree that these pages need."""
    for name in COPIED:
        shutil.copytree(
            TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "native")
        )
    for name in SINGLE:
        shutil.copy(TOP / name, folder / name)
    return folder


def apply(edit: Edit, tree: Path) -> None:
    """Apply one edit; the line that it names must exist once."""
    path = tree / edit.file
    if edit.place == "a new file":
        path.write_text(edit.text, encoding="utf-8")
        return
    place = PLACE.fullmatch(edit.place)
    assert place is not None, edit.place
    where, mark = place.groups()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    line_begins = re.compile(rf"\s*{re.escape(mark)}(?!\w)")
    at = [number for number, line in enumerate(lines) if line_begins.match(line)]
    assert len(at) == 1, f"{edit.file} has {len(at)} lines that begin with {mark}"
    first = at[0] + (where == "below")
    last = at[0] + (where != "above")
    blank = "\n\n" if where == "above" and not edit.text.startswith(" ") else ""
    path.write_text("".join([*lines[:first], edit.text, blank, *lines[last:]]), encoding="utf-8")


def run(tree: Path, *arguments: str) -> str:
    """Run Python in the copy; return its output; fail unless its exit status is 0."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copy_tree(tmp_path / "tree")


def test_a_policy_is_added_by_its_page(tree: Path) -> None:
    """With the page's edits `--policy` knows the policy, its law holds, and it grows a tree."""
    for edit in edits_of("add-a-policy.md"):
        apply(edit, tree)

    lines = run(tree, "grow_a_tree.py").splitlines()
    assert 21 == len(lines)
    assert "node  0 from None: 100.0 us" == lines[0]
    run(
        tree, "-m", "pytest", "tests/coordinator/test_policies.py",
        "-k", "decaying-epsilon or every_policy_there_is",
    )  # fmt: skip


def test_a_backend_is_added_by_its_page(tree: Path) -> None:
    """With the page's edits prompts have the backend's notes, and its examples build and agree."""
    for edit in edits_of("add-a-backend.md"):
        apply(edit, tree)

    assert [
        "first labels: ()",
        "after labels: ()",
        "first agrees",
        "after agrees",
    ] == run(tree, "check_backend.py").splitlines()
    laws = (
        "test_every_backend_has_notes_and_examples",
        "test_the_examples_answers_pass_our_checks",
    )
    run(tree, "-m", "pytest", *(f"tests/agents/test_prompt_sections.py::{law}[c]" for law in laws))
