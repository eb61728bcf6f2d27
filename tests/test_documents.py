"""The documents: each file, function, law and decision that they name exists."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent
FOLDERS = ("actors", "protocol", "prompts", "scripts", "tests", "docs", "examples")
SUFFIXES = (".py", ".md", ".sql", ".css", ".toml", ".h", ".cpp")
# Files of a user or of a run: documents name them, and the repository does not have them.
ELSEWHERE = {
    *("t.py", "a.py", "b.py", "c.py", "d.py", "mine.py", "faster.py", "best.py", "best-TASK.py"),
    *("mymodel.py", "dispatch.py", "cases.toml"),
    *("stark.toml", "gpus.toml", "cuda_runtime.h", "main.cpp", "sitecustomize.py"),
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([^`\n]+)`")
CODE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
MADE = re.compile(r"`([^`\n]+)`, a new file")  # by the reader of a how-to page
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
CODE_NAME = re.compile(r"_|[a-z][A-Z]|^[A-Z]{3}|^[A-Z][a-z]")  # part of a word that is not prose
NOT_OURS = {"preexec_fn", "STARK_POLICY", "hugetlb"}
STEP = re.compile(r"`([\w/]+\.py)` `([\w.]+)`")
MODULE = re.compile(r"python3? -m ((?:actors|scripts|tests)[\w.]*)")
PLACEHOLDER = re.compile(r"^[./]|BACKEND|NAME|TASK|RUN|NNN")  # a user's path, or one of many
DECISION = re.compile(r"^- \[(\d{3})\]\(([^)\s]+)\) (.*)$", re.MULTILINE)
SUCCESSOR = re.compile(r"^(Replaced|Replaced in part|Extended) by \[(\d{3})\]", re.MULTILINE)
MARK = re.compile(r"(replaced|replaced in part|extended) by (\d{3}(?: and \d{3})*)")
FIRST_CELL = re.compile(r"^\|((?:\\\||[^|\n])*)\|", re.MULTILINE)  # of a row of a table
README_LINES, README_COLUMNS = 100, 130
LAW = re.compile(r"evaluation-laws\.md,? law (\d+)|\blaw (\d+)\b")


def documents() -> list[Path]:
    """Return every page of `docs/`, every README, and SECURITY.md."""
    readmes = [page for folder in FOLDERS for page in (TOP / folder).rglob("README.md")]
    return sorted({*(TOP / "docs").rglob("*.md"), *readmes, TOP / "README.md", TOP / "SECURITY.md"})


def modules_of(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((TOP / folder).rglob("*.py"))]


PAGES = [str(page.relative_to(TOP)) for page in documents()]


def found(name: str, page: Path) -> bool:
    """Whether a quoted name is a file: relative to the top or the page, or below a README."""
    if (TOP / name).exists() or (page.parent / name).exists():
        return True
    if page.name != "README.md":
        return False
    return any(str(path).endswith(f"/{name}") for path in page.parent.rglob(Path(name).name))


def paths_in(text: str, page: Path) -> Iterator[str]:
    """Yield the quoted words that look like a file or a folder of the repository."""
    readme = page.name == "README.md"
    for quoted in QUOTED.findall(text):
        word = quoted.split("::")[0].rstrip(":")
        if not re.fullmatch(r"[\w./-]+", word) or PLACEHOLDER.search(word):
            continue
        ours = word.split("/")[0] in FOLDERS and "/" in word
        if ours or (readme and word.endswith(SUFFIXES) and Path(word).name not in ELSEWHERE):
            yield word


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    """A reader who follows a link within the repository finds a file."""
    path = TOP / page
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    links = [link.split("#")[0] for link in LINK.findall(text)]
    inner = [link for link in links if link and "://" not in link and not link.startswith("mailto")]

    assert [] == [link for link in inner if not (path.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page: str) -> None:
    """A renamed module is renamed in the documents, too, also where `python -m` runs it."""
    path = TOP / page
    text = path.read_text(encoding="utf-8")
    modules = [module.rstrip(".").replace(".", "/") for module in MODULE.findall(text)]

    made = set(MADE.findall(text))
    names = [name for name in paths_in(text, path) if name not in made]
    assert [] == [name for name in names if not found(name, path)]
    assert [] == [
        name
        for name in modules
        if not (TOP / f"{name}.py").exists() and not (TOP / name / "__main__.py").exists()
    ]


@cache
def names_in(path: Path) -> set[str]:
    """Return what a module defines: NAME, and CLASS.NAME for what its classes define."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            names |= {f"{node.name}.{part.name}" for part in inner}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("page", PAGES)
def test_every_function_that_is_named_is_in_its_file(page: str) -> None:
    """ "`path.py` `function`" is a step of a flow: the file defines the function."""
    steps = STEP.findall((TOP / page).read_text(encoding="utf-8"))

    assert [] == [
        (path, name)
        for path, name in steps
        if (TOP / path).exists() and name not in names_in(TOP / path)
    ]


@cache
def names_of_the_code() -> frozenset[str]:
    """Return every identifier in the code, and the stem of every file."""
    texts = [path for folder in FOLDERS for path in (TOP / folder).rglob("*.*")]
    found = {path.stem for path in texts} | {"supervisor"}
    for path in [*texts, TOP / "supervisor.py"]:
        if path.suffix in (".py", ".sql", ".toml", ".h", ".cpp"):
            found |= set(re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8")))
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_code_exists(page: str) -> None:
    """A class, constant or function that a page quotes is in the code: a rename changes both."""
    text = CODE.sub("", (TOP / page).read_text(encoding="utf-8"))
    quoted = {word for word in QUOTED.findall(text) if NAME.fullmatch(word)}
    parts = {part for word in quoted for part in word.rstrip("()").split(".")}

    names = {part for part in parts if CODE_NAME.search(part)}
    assert set() == names - names_of_the_code() - NOT_OURS


def test_the_architecture_has_its_three_flows() -> None:
    """docs/architecture.md has three flows, each step with a file and a function."""
    text = (TOP / "docs/architecture.md").read_text(encoding="utf-8")
    flows = re.findall(r"^## (Flow \d)", text, re.MULTILINE)

    assert ["Flow 1", "Flow 2", "Flow 3"] == flows
    assert len(STEP.findall(text)) > 60


def decisions() -> dict[str, str]:
    """Return the text of each decision by its number."""
    paths = (TOP / "docs/decisions").glob("[0-9]*.md")
    return {path.name[:3]: path.read_text(encoding="utf-8") for path in paths}


def test_every_decision_is_listed_with_its_title() -> None:
    """docs/decisions/README.md lists each decision once; every list of decisions has the titles."""
    titles = {
        number: text.partition("\n")[0].partition(": ")[2] for number, text in decisions().items()
    }
    listed = {
        page: DECISION.findall((TOP / page).read_text(encoding="utf-8"))
        for page in PAGES
        if page.endswith("README.md")
    }
    numbers = [number for number, _, _ in listed["docs/decisions/README.md"]]

    assert sorted(titles) == sorted(numbers)
    assert [] == [
        (page, number, title)
        for page, found in listed.items()
        for number, _, title in found
        if MARK.split(title)[0].removesuffix(" (") != titles[number]
    ]


def test_the_list_of_decisions_says_which_were_replaced() -> None:
    """A decision that begins with its successors has them in the list, and no other has any."""
    listed = DECISION.findall((TOP / "docs/decisions/README.md").read_text(encoding="utf-8"))
    marks = {
        number: {(kind, by) for kind, all_by in MARK.findall(title) for by in all_by.split(" and ")}
        for number, _, title in listed
    }
    begins_with = {
        number: {(kind.lower(), by) for kind, by in SUCCESSOR.findall(text)}
        for number, text in decisions().items()
    }
    assert begins_with == marks


def unlisted(readme: Path) -> Iterator[str]:
    """Yield the modules that a README's tables leave out, and the folders.

    The first cells of the rows name files and folders.  A folder whose files are named is listed
    file by file; another one is named as a whole, or lies in a folder that is.
    """
    top = readme.parent
    cells = " ".join(FIRST_CELL.findall(readme.read_text(encoding="utf-8")))
    words = {quoted.split()[0] for quoted in QUOTED.findall(cells)}
    names = {word.rpartition("/")[2] for word in words} - {"__main__.py", ""}
    for folder in sorted({path.parent for path in top.rglob("*.py")}):
        within = [folder, *folder.parents][: len(folder.relative_to(top).parts)]
        if any((one / "README.md").exists() for one in within):
            continue
        modules = {path.name for path in folder.glob("*.py")} - {"__init__.py", "__main__.py"}
        is_whole = any(f"{one.relative_to(top)}/" in words for one in within)
        has_paths = any(f"{folder.relative_to(top)}/{name}" in words for name in modules)
        if folder == top or has_paths or (modules & names and not is_whole):
            yield from (f"{folder.relative_to(top)}/{name}" for name in sorted(modules - names))
        elif modules and not is_whole:
            yield f"{folder.relative_to(top)}/"


READMES = [page for page in PAGES if page.endswith("/README.md")]


@pytest.mark.parametrize(
    "page", [page for page in READMES if page.split("/")[0] in ("actors", "protocol", "scripts")]
)
def test_every_module_is_in_the_readme_of_its_folder(page: str) -> None:
    """A new module gets a line in the nearest README, or lies in a folder that has one."""
    assert [] == list(unlisted(TOP / page))


def test_every_picture_is_shown() -> None:
    """A picture in docs/images is on some page."""
    text = "".join((TOP / page).read_text(encoding="utf-8") for page in PAGES)
    names = sorted(path.name for path in (TOP / "docs/images").iterdir())
    assert [] == [name for name in names if f"images/{name})" not in text]


def test_the_readme_is_short() -> None:
    """The README fits on a few screens, and names the test command that CI runs."""
    text = (TOP / "README.md").read_text(encoding="utf-8")
    lines = text.splitlines()

    assert len(lines) <= README_LINES
    assert [] == [line for line in lines if len(line) > README_COLUMNS and "](" not in line]
    assert "make test" in text


def test_every_law_that_code_cites_exists() -> None:
    """The laws are numbered 1 to 18, each a heading, and no code cites another."""
    laws = (TOP / "docs/evaluation-laws.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^## Law (\d+):", laws, re.MULTILINE)]
    cited = {
        int(number)
        for path in modules_of("actors", "protocol", "scripts")
        for groups in LAW.findall(path.read_text(encoding="utf-8"))
        for number in groups
        if number
    }

    assert list(range(1, 19)) == numbers
    assert cited <= set(numbers)


@pytest.mark.skipif(not (TOP / ".git").exists(), reason="not a checkout")
def test_the_top_folder_has_one_module() -> None:
    """The task file of a try is not committed at the top, where users look first."""
    listed = subprocess.run(
        ["git", "ls-files", ":(glob)*.py"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ["supervisor.py"] == listed.stdout.split()


def test_no_page_points_out_of_the_repository() -> None:
    """Code and pages cite only pages that are in the repository."""
    lost = re.compile(r"\b(DESIGN|METHOD|RELIABILITY|EVALUATION|FAST_BUILDS|STYLE)(\.md\b|'s|, )")
    texts = [*documents(), *modules_of(*FOLDERS)]

    assert [] == [
        str(path.relative_to(TOP))
        for path in texts
        if path != Path(__file__) and lost.search(path.read_text(encoding="utf-8"))
    ]
