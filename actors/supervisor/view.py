"""The live view in a terminal: trees with verdicts, best so far, what each actor does, spend.

Drawn only when the supervision loop calls `show`: no thread of its own.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from actors.supervisor import phrases
from actors.supervisor.crew import Member
from actors.supervisor.snapshot import Node, Snapshot, TaskState
from protocol.settings import Settings
from protocol.values import Word

TREES = 3  # tasks whose tree is drawn at once; the others get a line
LEAST_ROWS = 6
COLOURS = {Word.CORRECT: "green", Word.REJECTED: "bold red", Word.NO_CANDIDATE: "dim"}


class LiveScreen:
    """A picture that is redrawn in place; what was said stays above it."""

    def __init__(self, console: Console, settings: Settings, folder: str) -> None:
        self._console = console
        self._settings = settings
        self._folder = folder
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def say(self, line: str) -> None:
        self._live.console.print(Text(line))

    def show(self, snapshot: Snapshot, crew: tuple[Member, ...], elapsed_s: float) -> None:
        self._live.update(self._picture(snapshot, crew, elapsed_s), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _picture(
        self, snapshot: Snapshot, crew: tuple[Member, ...], elapsed_s: float
    ) -> RenderableType:
        rows = max(LEAST_ROWS, self._console.height - len(crew) - 8)
        spent = phrases.total([task.spend for task in snapshot.tasks])
        status = snapshot.status or "starting"
        return Group(
            Text.assemble((f"{status} ", "bold"), f"{phrases.clock(elapsed_s)}  {self._folder}"),
            Text(f"model {phrases.model(self._settings)}", style="dim"),
            *_tasks(snapshot, rows),
            Text(""),
            crew_table(crew),
            Text(phrases.spend(spent), style="dim"),
        )


def _tasks(snapshot: Snapshot, rows: int) -> list[RenderableType]:
    open_tasks = [task for task in snapshot.tasks if not snapshot.is_finished(task)]
    drawn = (open_tasks or list(snapshot.tasks))[:TREES]
    parts: list[RenderableType] = []
    for task in drawn:
        parts.append(task_title(task))
        parts.append(tree_of(task, max(LEAST_ROWS, rows // len(drawn) - 2)))
    others = [task for task in snapshot.tasks if task not in drawn]
    if others:
        finished = sum(snapshot.is_finished(task) for task in others)
        parts.append(Text(f"and {len(others)} more tasks, {finished} of them finished"))
    return parts


def task_title(task: TaskState) -> Text:
    """Return the lines above a tree: where the task stands, and its attempts by verdict."""
    words = ", ".join(f"{count} {word}" for word, count in phrases.counts(task).items())
    under_way = ", ".join(f"{one.number}: {one.state}" for one in task.under_way)
    return Text.assemble(
        (phrases.best_line(task), "bold"),
        (f"\n  {words}" if words else ""),
        (f"  under way {under_way}" if under_way else "", "cyan"),
        *((f"\n{note}", "yellow") for note in task.notes),
    )


def tree_of(task: TaskState, rows: int) -> Tree:
    """Return the tree, cut to `rows` lines: the best's line of descent and the newest nodes."""
    shown = nodes_to_show(task, rows)
    eager = phrases.duration(task.reference.eager_us) if task.reference else "being measured"
    tree = Tree(Text(f"0 reference {eager}"), guide_style="dim")
    branches = {0: tree}
    best = task.best
    for node in shown:
        branch = branches.get(node.parent or 0, tree)
        branches[node.number] = branch.add(_label(task, node, best))
    hidden = len(task.attempts) - len(shown)
    if hidden:
        tree.add(Text(f"… and {hidden} more", style="dim"))
    return tree


def nodes_to_show(task: TaskState, rows: int) -> list[Node]:
    """Return at most `rows` nodes, every one with all its ancestors, in the order of numbers."""
    by_number = {node.number: node for node in task.attempts}
    chosen: dict[int, Node] = {}
    wanted = [task.best] if task.best else []
    for node in [*wanted, *reversed(task.attempts)]:
        line = []
        walk: Node | None = node
        while walk is not None and walk.number not in chosen:
            line.append(walk)
            walk = by_number.get(walk.parent or 0)
        if len(chosen) + len(line) <= rows:
            chosen.update((one.number, one) for one in line)
    return [chosen[number] for number in sorted(chosen)]


def _label(task: TaskState, node: Node, best: Node | None) -> Text:
    is_best = best is not None and node.number == best.number
    style = "bold green" if is_best else COLOURS.get(node.verdict.verdict, "red")
    label = Text.assemble(
        f"{node.number} ", (phrases.result(task, node), style), (" ★" if is_best else "", "yellow")
    )
    label.append(f"  {phrases.about(node)}", style="dim")
    label.no_wrap = True
    label.overflow = "ellipsis"
    return label


def crew_table(crew: tuple[Member, ...]) -> Table:
    """Return what each actor does, since when, and how often and why it was started again."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("actor", "pid", "doing", "for", "leases", "rtt", "restarts", "last cause"):
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for member in crew:
        table.add_row(
            member.slot,
            str(member.pid or "–"),
            Text(member.doing or ("idle" if member.state == "up" else member.state)),
            phrases.clock(member.seconds) if member.seconds is not None else "",
            str(member.leases or ""),
            phrases.duration(member.rtt_ms * 1000) if member.rtt_ms is not None else "",
            str(member.restarts or ""),
            Text(member.cause),
        )
    return table
