"""`python scripts/cards.py`: the knowledge cards of `prompts/cards`, and what runs taught.

It prints cards, compiles their code, and turns measured steps of runs into lessons, which a person
accepts (docs: prompts/cards/README.md).
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
CARDS_FOLDER = ROOT / "prompts" / "cards"

if TYPE_CHECKING:
    from actors.agents.cards.card import Card
    from actors.cli import OneLineParser

    Verbs = argparse._SubParsersAction[OneLineParser]


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand and return the exit status."""
    sys.path.insert(0, str(ROOT))  # works from a checkout that was never installed
    from actors.startup_packages import end_without_packages

    end_without_packages()
    from actors.agents.cards.card import CardError
    from actors.agents.cards.lessons import LessonError
    from actors.cli import exit_when_reader_closes
    from actors.exit_status import ExitStatus

    options = _parser().parse_args(arguments)
    exit_when_reader_closes()
    try:
        return int(options.run(options))
    except OSError as error:
        print(f"can't use {error.filename}: {error.strerror}", file=sys.stderr)
        return ExitStatus.USAGE
    except (CardError, LessonError, ValueError, sqlite3.DatabaseError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return ExitStatus.USAGE


def _parser() -> argparse.ArgumentParser:
    from actors.cli import OneLineParser
    from actors.commands import typed_command, with_typed_commands

    parser = OneLineParser(
        prog=typed_command("cards"),
        description=with_typed_commands(__doc__),
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_reading_verbs(verbs)
    _add_checking_verbs(verbs)
    _add_lesson_verbs(verbs)
    return parser


def _add_reading_verbs(verbs: Verbs) -> None:
    """Add the verbs that print cards."""
    from actors.agents.cards.card import BOTTLENECKS
    from protocol.values import BACKENDS

    listed = verbs.add_parser(
        "list", help="one line a card: operations, architecture, bottleneck, effect"
    )
    listed.set_defaults(run=_list)
    shown = verbs.add_parser("show", help="a card as a request shows it")
    shown.add_argument("name", metavar="NAME")
    shown.set_defaults(run=_show)
    chosen = verbs.add_parser("choose", help="the cards that a request about a task would show")
    chosen.add_argument("--task", type=Path, required=True, metavar="FILE", help="a task's file")
    chosen.add_argument("--backend", choices=BACKENDS, default="cpp", help="default: cpp")
    chosen.add_argument(
        "--capability", default="9.0", help="of the GPU, for cuda and triton (default: 9.0)"
    )
    chosen.add_argument(
        "--inputs", default="", metavar="SHAPES", help='such as "float32[64, 1024]"; sets the row'
    )
    chosen.add_argument("--bottleneck", choices=BOTTLENECKS, default="")
    chosen.add_argument("--text", action="store_true", help="print the section of the request")
    chosen.set_defaults(run=_choose)


def _add_checking_verbs(verbs: Verbs) -> None:
    """Add the verbs that compile cards and write what was measured into them."""
    checked = verbs.add_parser(
        "check", help="compile the cards' code; --record writes what compiled"
    )
    checked.add_argument("names", nargs="*", metavar="NAME")
    checked.add_argument("--changed", action="store_true", help="only those that are not recorded")
    checked.add_argument("--record", action="store_true", help="write what compiled")
    checked.add_argument(
        "--include", action="append", default=[], metavar="DIR", help="a folder with headers"
    )
    checked.set_defaults(run=_check)
    measured = verbs.add_parser("effects", help="write what tests.cards measured into the cards")
    measured.add_argument(
        "file", type=Path, metavar="FILE", help="what tests.cards wrote with --json"
    )
    measured.set_defaults(run=_effects)


def _add_lesson_verbs(verbs: Verbs) -> None:
    """Add the verbs about what runs taught."""
    mined = verbs.add_parser(
        "mine", help="promised against measured speed-ups of steps with one lever"
    )
    mined.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="run folders")
    mined.add_argument("--write", type=Path, metavar="FILE", help="the lines, for accept")
    mined.set_defaults(run=_mine)
    accepted = verbs.add_parser("accept", help="put lines of mine, all or some, into lessons.json")
    accepted.add_argument("file", type=Path, metavar="FILE", help="what mine wrote")
    accepted.add_argument("numbers", type=int, nargs="*", metavar="N", help="of lines, from 1")
    accepted.set_defaults(run=_accept)


def _named(names: list[str]) -> list[Card]:
    from actors.agents.cards.card import CardError, load_cards

    cards = {card.name: card for card in load_cards()}
    unknown = [name for name in names if name not in cards]
    if unknown:
        raise CardError(f"there is no card {unknown[0]!r}; `list` prints the names")
    return [cards[name] for name in names] or list(cards.values())


def _list(_options: argparse.Namespace) -> int:
    for card in _named([]):
        kinds = f"{', '.join(card.operations)} | {', '.join(card.bottleneck)}"
        print(f"{card.name:26} {card.architecture:8} {kinds} | {card.effect}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from actors.agents.cards.selection import card_lines

    card = _named([options.name])[0]
    print("\n".join(card_lines([card])))
    print(f"\n(source: {card.source}; last checked {card.checked})")
    return 0


def _choose(options: argparse.Namespace) -> int:
    from actors.agents.cards.selection import card_lines, choose_cards
    from actors.agents.cards.task_operations import task_operations
    from actors.evaluator.devices.device_description import cpu_device
    from protocol.values import Device, Reference, Task

    source = options.task.read_text(encoding="utf-8")
    is_cpu = options.backend == "cpp"
    device = (
        cpu_device()
        if is_cpu
        else Device(kind="cuda", facts={"compute capability": options.capability})
    )
    task = Task(name=options.task.stem, source=source, device=device.kind, backend=options.backend)
    reference = Reference(eager_us=1.0, device=device, inputs=options.inputs)
    cards = choose_cards(task, reference, bottleneck=options.bottleneck)
    if options.text:
        print("\n".join(card_lines(cards)))
        return 0
    print(f"operations: {', '.join(task_operations(source, options.inputs)) or 'none known'}")
    for card in cards:
        print(f"{card.name:26} {card.title}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from actors.agents.cards import compile_check
    from actors.exit_status import ExitStatus

    record = compile_check.read_record()
    cards = _named(options.names)
    if options.changed:
        cards = compile_check.not_compiled(cards, record)
    failed = 0
    for card in cards:
        try:
            problem = compile_check.compile_problem(card, options.include)
        except FileNotFoundError as error:
            print(f"{card.name}: {error.filename} is not here; not compiled")
            failed += 1
            continue
        print(f"{card.name}: {problem or 'compiles'}")
        failed += bool(problem)
        if not problem:
            record[card.name] = compile_check.CompiledCard(
                digest=card.digest, compiler=compile_check.compiler_version(card)
            )
    if options.record:
        known = {card.name for card in _named([])}
        kept = {name: line for name, line in record.items() if name in known}
        compile_check.write_record(kept, CARDS_FOLDER)
    return ExitStatus.NEGATIVE if failed else ExitStatus.DONE


def _effects(options: argparse.Namespace) -> int:
    import datetime

    import msgspec

    from actors.agents.cards import effects
    from actors.agents.cards.card import parse_card
    from actors.exit_status import ExitStatus

    rows = msgspec.json.decode(options.file.read_bytes(), type=list[effects.MeasuredRow])
    found = effects.effects_of(rows)
    paths = {path.stem: path for path in CARDS_FOLDER.glob("*.md")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
    day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    changed = effects.with_effects(texts, found, day)
    for name, text in changed.items():
        parse_card(name, text)  # raises if it is too long now
        kept = effects.EFFECT.search(text)
        own = kept is not None and found[name] not in kept[0]
        print(f"{name:26} {found[name]}{', its own words stay' if own else ''}")
    for name, text in changed.items():
        paths[name].write_text(text, encoding="utf-8")
    wrong = [name for name, effect in found.items() if not effect]
    for name in wrong:
        print(f"{name:26} a result was wrong: not written")
    return ExitStatus.NEGATIVE if wrong else ExitStatus.DONE


def _mine(options: argparse.Namespace) -> int:
    from actors.agents.cards import lessons
    from scripts.tables.lesson_steps import steps_of_run

    steps = [step for run in options.runs for step in steps_of_run(run)]
    every = lessons.mine(steps)
    found = [one for one in every if one.is_told]
    for number, lesson in enumerate(found, start=1):
        print(f"{number:3} {lesson.line}")
    for lesson in every:
        if not lesson.is_told:
            print(f"  - too little to accept: {lesson.line}")
    print(lessons.left_out(steps) or "these runs have no judged step")
    if options.write:
        lessons.write(options.write, found)
        print(f"written to {options.write}; read it, then: accept {options.write} [N…]")
    return 0


def _accept(options: argparse.Namespace) -> int:
    from actors.agents.cards import lessons

    kept = lessons.accept(options.file, options.numbers, CARDS_FOLDER)
    print(f"{len(kept)} lines in {CARDS_FOLDER / lessons.FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
