"""The files of the page: what a browser gets, and where the vendored parts come from."""

from __future__ import annotations

import hashlib
import json
import re

from actors.supervisor.page import PAGE

APP = sorted((PAGE / "app").glob("*.js"))
ORDER = json.loads((PAGE / "scripts.json").read_text(encoding="utf-8"))
MANIFEST = json.loads((PAGE / "vendor" / "manifest.json").read_text(encoding="utf-8"))


def test_vendored_files_are_those_of_the_manifest() -> None:
    """Each vendored file is in the manifest with the hash of its content, and has its licence."""
    listed = {part["file"]: part["sha256"] for package in MANIFEST for part in package["files"]}
    licences = {package["licence_file"] for package in MANIFEST}
    found = {path.name for path in (PAGE / "vendor").iterdir()} - {"manifest.json"}
    assert found == set(listed) | licences
    for name, expected in listed.items():
        assert expected == hashlib.sha256((PAGE / "vendor" / name).read_bytes()).hexdigest(), name


def test_index_loads_what_scripts_json_lists() -> None:
    """index.html and report.html load the same files in the same order, and leave none out."""
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    assert ORDER["scripts"] == re.findall(r'<script src="([^"]+)"></script>', index)
    assert ORDER["styles"] == re.findall(r'<link rel="stylesheet" href="([^"]+)">', index)
    own = {f"app/{path.name}" for path in APP}
    assert own == {name for name in ORDER["scripts"] if name.startswith("app/")}


def test_scripts_can_be_inlined() -> None:
    """No file ends or opens a script element: report.html holds them as they are."""
    for name in [*ORDER["scripts"], *ORDER["styles"]]:
        text = (PAGE / name).read_text(encoding="utf-8").lower()
        assert not re.search(r"</script|</style|<!--", text), name


def test_app_makes_no_markup_and_no_code_from_text() -> None:
    """A word of a model can only become a text node: nothing in the page parses a text."""
    names = ("[a-z]+HTML", r"document\.write", r"\beval\b", "new Function", "https?://")
    forbidden = "|".join(names)
    for path in APP:
        assert [] == re.findall(forbidden, path.read_text(encoding="utf-8")), path.name


def test_app_files_are_short_strict_and_introduced() -> None:
    """Each file is strict, says in its second line what it is, and is at most 400 lines long."""
    for path in APP:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert '"use strict";' == lines[0], path.name
        assert lines[1].startswith("// "), path.name
        assert len(lines) <= 400, path.name
