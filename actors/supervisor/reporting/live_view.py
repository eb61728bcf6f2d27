"""The live view in a terminal: trees with verdicts, the best so far, actors, spend.

The view is drawn only when the supervision loop calls `show`; it has no thread of its own.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from actors.supervisor.reporting import formatting
from actors.supervisor.reporting.snapshot import NodeView, Snapshot, TaskState
from actors.supervisor.reporting.worker_status import WorkerStatus
from protocol.settings import Settings
from protocol.values import Outcome

MAX_TREES = 3  # tasks whose tree is drawn at once; the others get a line
MIN_ROWS = 6
COLOURS = {Outcome.CORRECT: "green", Outcome.REJECTED: "bold red", Outcome.NO_CANDIDATE: "dim"}


class LiveScreen:
    """A picture that is redrawn in place; the lines of `say` stay above it."""

    def __init__(self, console: Console, settings: Settings, folder: str) -> None:
        self._console = console
        self._settings = settings
        self._folder = folder
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()

    def say(self, line: str) -> None:
        self._live.console.print(Text(line))

    def show(self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        self._live.update(self._picture(snapshot, workers, elapsed_s), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _picture(
        self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], elapsed_s: float
    ) -> RenderableType:
        rows = max(MIN_ROWS, self._console.height - len(workers) - 8)
        spent = formatting.total_spend([task.spend for task in snapshot.tasks])
        status = snapshot.status or "starting"
        return Group(
            Text.assemble(
                (f"{status} ", "bold"), f"{formatting.clock_time(elapsed_s)}  {self._folder}"
            ),
            Text(f"model {formatting.model_line(self._settings)}", style="dim"),
            *_tasks(snapshot, rows),
            Text(""),
            worker_table(workers),
            Text(formatting.spend_line(spent), style="dim"),
        )


def _tasks(snapshot: Snapshot, rows: int) -> list[RenderableType]:
    open_tasks = [task for task in snapshot.tasks if not snapshot.is_finished(task)]
    drawn = (open_tasks or list(snapshot.tasks))[:MAX_TREES]
    parts: list[RenderableType] = []
    for task in drawn:
        parts.append(task_title(task))
        parts.append(tree_of(task, max(MIN_ROWS, rows // len(drawn) - 2)))
    others = [task for task in snapshot.tasks if task not in drawn]
    if others:
        finished = sum(snapshot.is_finished(task) for task in others)
        parts.append(Text(f"and {len(others)} more tasks, {finished} of them finished"))
    return parts


def task_title(task: TaskState) -> Text:
    """Return the lines above a tree: the task's best, and its attempts by verdict."""
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in formatting.counts(task).items())
    under_way = ", ".join(f"{one.number}: {one.state}" for one in task.under_way)
    return Text.assemble(
        (formatting.best_line(task), "bold"),
        (f"\n  {outcomes}" if outcomes else ""),
        (f"  under way {under_way}" if under_way else "", "cyan"),
        *((f"\n{note}", "yellow") for note in task.notes),
    )


def tree_of(task: TaskState, rows: int) -> Tree:
    """Return the tree with `rows` lines at most: the best's ancestors and the newest nodes."""
    shown = nodes_to_show(task, rows)
    eager = formatting.duration(task.reference.eager_us) if task.reference else "being measured"
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


def nodes_to_show(task: TaskState, rows: int) -> list[NodeView]:
    """Return at most `rows` nodes, each with all its ancestors, ordered by number."""
    by_number = {node.number: node for node in task.attempts}
    chosen: dict[int, NodeView] = {}
    first = [task.best] if task.best else []
    for node in [*first, *reversed(task.attempts)]:
        ancestry = []
        ancestor: NodeView | None = node
        while ancestor is not None and ancestor.number not in chosen:
            ancestry.append(ancestor)
            ancestor = by_number.get(ancestor.parent or 0)
        if len(chosen) + len(ancestry) <= rows:
            chosen.update((node.number, node) for node in ancestry)
    return [chosen[number] for number in sorted(chosen)]


def _label(task: TaskState, node: NodeView, best: NodeView | None) -> Text:
    is_best = best is not None and node.number == best.number
    style = "bold green" if is_best else COLOURS.get(node.verdict.verdict, "red")
    label = Text.assemble(
        f"{node.number} ",
        (formatting.result(task, node), style),
        (" ★" if is_best else "", "yellow"),
    )
    label.append(f"  {formatting.node_summary(node)}", style="dim")
    label.no_wrap = True
    label.overflow = "ellipsis"
    return label


def worker_table(workers: tuple[WorkerStatus, ...]) -> Table:
    """Return a table of the actors: activity, its duration, restarts and the last cause."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("actor", "pid", "doing", "for", "leases", "rtt", "restarts", "last cause"):
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for worker in workers:
        table.add_row(
            worker.slot,
            str(worker.pid or "–"),
            Text(worker.activity or ("idle" if worker.state == "up" else worker.state)),
            formatting.clock_time(worker.seconds) if worker.seconds is not None else "",
            str(worker.leases or ""),
            formatting.duration(worker.rtt_ms * 1000) if worker.rtt_ms is not None else "",
            str(worker.restarts or ""),
            Text(worker.cause),
        )
    return table
