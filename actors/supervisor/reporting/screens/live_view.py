"""The live view in a terminal: state, money, trees with verdicts, the best so far, actors.

The view is drawn only when the supervision loop calls `show`; it has no thread of its own.  It fits
the terminal as it is at that moment: narrow terminals lose columns, low ones lose rows of trees.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import IO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from actors.supervisor.reporting.run_data import formatting, unit_costs
from actors.supervisor.reporting.run_data.snapshot import NodeView, Snapshot, TaskState
from actors.supervisor.reporting.run_data.worker_status import WorkerStatus
from actors.supervisor.reporting.screens import run_progress
from actors.supervisor.reporting.screens.cursor_guard import CursorGuard
from actors.supervisor.reporting.screens.terminal_stream import TerminalStream
from protocol.settings import Settings
from protocol.values import Outcome

MAX_TREES = 3  # tasks whose tree is drawn at once; the others get a line
MIN_ROWS = 3
MAX_MESSAGES = 3  # that stay visible; all of them are above the picture, too
MIN_WORKER_ROWS = 4
MAX_COLUMN = 14  # of the table of actors; a longer name is cut
WIDE_COLUMNS = 100  # of a terminal: from here on the table of actors has all its columns
NARROW_COLUMNS = 60  # below this it has no restarts and causes
MAX_CURVE = 40
COLOURS = {Outcome.CORRECT: "green", Outcome.REJECTED: "bold red", Outcome.NO_CANDIDATE: "dim"}


class LiveScreen:
    """A picture that is redrawn in place; the lines of `say` stay above it, the last ones in it."""

    def __init__(
        self,
        console: Console,
        settings: Settings,
        folder: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # A terminal that is closed drains the run: it must not end it without results.
        console.file = cast("IO[str]", TerminalStream(console.file))
        self._console = console
        self._settings = settings
        self._folder = folder
        self._clock = clock
        self._messages: deque[tuple[float, str]] = deque(maxlen=MAX_MESSAGES)
        self._size = console.size
        self._guard = CursorGuard(console)
        self._live: Live | None = None  # begins with the first picture

    def say(self, line: str) -> None:
        """Show a line above the picture; once the run has begun, the last ones also in it."""
        line = formatting.printable(line)
        if self._live is not None:
            self._messages.append((self._clock(), line))
        self._console.print(Text(line))

    def show(self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], elapsed_s: float) -> None:
        """Draw the run as it is now."""
        if self._live is not None and self._console.size != self._size:
            # The terminal has wrapped the old picture's lines: it can't be replaced in place.
            self.close()
            self._console.clear()
        if self._live is None:
            self._size = self._console.size
            self._guard.begin()
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        self._live.update(self._picture(snapshot, workers, elapsed_s), refresh=True)

    def close(self) -> None:
        """Leave the last picture, and the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._guard.end()

    def _picture(
        self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], elapsed_s: float
    ) -> RenderableType:
        width, height = self._console.size
        above: list[RenderableType] = [*self._head(snapshot, elapsed_s), *self._message_lines()]
        table = worker_table(workers, width, max(MIN_WORKER_ROWS, height // 3))
        spent = _line(unit_costs.spent_line(snapshot.tasks), "dim")
        below: list[RenderableType] = [Text(""), table, spent]
        # The last row stays free: a picture as high as the terminal would scroll.
        rows = height - 1 - self._height(*above) - self._height(*below)
        return Group(*above, *self._tasks(snapshot, workers, rows), *below)

    def _height(self, *parts: RenderableType) -> int:
        return len(self._console.render_lines(Group(*parts), pad=False))

    def _head(self, snapshot: Snapshot, elapsed_s: float) -> list[RenderableType]:
        state = run_progress.state(snapshot)
        is_troubled = snapshot.is_paused or snapshot.status not in ("", "running", "finished")
        phrases = run_progress.summary(snapshot, self._settings, self._clock(), elapsed_s)
        return [
            Text.assemble(
                (formatting.printable(state), "bold yellow" if is_troubled else "bold"),
                f" {formatting.clock_time(elapsed_s)}  {formatting.printable(self._folder)}",
            ),
            Text(" · ".join(phrases)),
            _line(f"model {formatting.model_line(self._settings)}", "dim"),
        ]

    def _message_lines(self) -> list[RenderableType]:
        return [
            Text(f"{time.strftime('%H:%M:%S', time.localtime(at))} {line}", style="yellow")
            for at, line in self._messages
        ]

    def _tasks(
        self, snapshot: Snapshot, workers: tuple[WorkerStatus, ...], rows: int
    ) -> list[RenderableType]:
        open_tasks = [task for task in snapshot.tasks if not snapshot.is_finished(task)]
        drawn = (open_tasks or list(snapshot.tasks))[:MAX_TREES]
        others = [task for task in snapshot.tasks if task not in drawn]
        titles = [task_lines(task, workers, self._console) for task in drawn]
        free = rows - bool(others) - self._height(*_flat(titles))
        for place in reversed(range(len(drawn))):
            if free < 0 and len(titles[place]) > 1:  # a low terminal: one line for this task
                free += self._height(*titles[place]) - 1
                titles[place] = [_line(formatting.best_line(drawn[place]), "bold")]
        trees = sum(bool(task.attempts) for task in drawn)  # that are not drawn yet
        parts: list[RenderableType] = []
        for task, lines in zip(drawn, titles, strict=True):
            parts += lines
            if task.attempts:
                share = free // trees
                trees -= 1
                if share >= MIN_ROWS:
                    parts.append(tree_of(task, share - 2))  # its root, a line about hidden nodes
                    free -= self._height(parts[-1])
        if others:
            parts.append(_other_tasks(snapshot, others))
        return parts


def _line(text: str, style: str = "") -> Text:
    """Return one line that is cut at the terminal's edge."""
    return Text(formatting.printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _flat(lists: list[list[RenderableType]]) -> list[RenderableType]:
    return [part for parts in lists for part in parts]


def _other_tasks(snapshot: Snapshot, others: list[TaskState]) -> Text:
    finished = sum(snapshot.is_finished(task) for task in others)
    bests = [task.best.verdict.speedup for task in others if task.best is not None]
    best = f", their best {max(speedup or 0.0 for speedup in bests):.2f}×" if bests else ""
    return _line(f"and {len(others)} more tasks, {finished} of them finished{best}")


def task_lines(
    task: TaskState, workers: tuple[WorkerStatus, ...], console: Console
) -> list[RenderableType]:
    """Return the lines above a tree: best, verdicts, what is under way, curve and path to the best.

    While the reference is measured, they say which part and for how long.
    """
    measuring = run_progress.measuring(task, workers)
    if measuring:
        return [Text(formatting.printable(f"{task.name}: {measuring}"), "bold")]
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in formatting.counts(task).items())
    under_way = ", ".join(f"{one.number}: {one.state}" for one in task.under_way)
    is_ascii = not console.encoding.lower().startswith("utf")
    curve = run_progress.curve_line(task, min(MAX_CURVE, console.width // 3), ascii_only=is_ascii)
    path = run_progress.path_line(task, console.width - len("  path to it "))
    lines: list[RenderableType] = [Text(formatting.printable(formatting.best_line(task)), "bold")]
    for text, style in (
        (f"  {outcomes}" if outcomes else "", ""),
        (f"  under way {under_way}" if under_way else "", "cyan"),
        (f"  {curve}" if curve else "", "green"),
        (f"  path to it {path}" if path else "", "green"),
    ):
        if text:
            lines.append(_line(text, style))
    return [*lines, *(Text(formatting.printable(note), "yellow") for note in task.notes)]


def tree_of(task: TaskState, rows: int) -> Tree:
    """Return the tree with `rows` lines at most: the best's ancestors and the newest nodes."""
    shown = nodes_to_show(task, rows)
    eager = formatting.duration(task.reference.eager_us) if task.reference else "being measured"
    tree = Tree(_line(f"0 reference {eager}"), guide_style="dim")
    branches = {0: tree}
    best = task.best
    for node in shown:
        branch = branches.get(node.parent or 0, tree)
        branches[node.number] = branch.add(_label(task, node, best))
    hidden = len(task.attempts) - len(shown)
    if hidden:
        tree.add(_line(f"… and {hidden} more", "dim"))
    return tree


def nodes_to_show(task: TaskState, rows: int) -> list[NodeView]:
    """Return at most `rows` nodes, each with all its ancestors, ordered by number."""
    by_number = {node.number: node for node in task.attempts}
    chosen: dict[int, NodeView] = {}
    first = [task.best] if task.best else []
    for node in [*first, *reversed(task.attempts)]:
        if len(chosen) == rows:
            break
        ancestry: list[NodeView] = []
        ancestor: NodeView | None = node
        while (
            ancestor is not None
            and ancestor.number not in chosen
            and len(chosen) + len(ancestry) <= rows  # of thousands of nodes few are looked at
        ):
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
    label.append(f"  {formatting.printable(formatting.node_summary(node))}", style="dim")
    label.no_wrap = True
    label.overflow = "ellipsis"
    return label


def worker_table(workers: tuple[WorkerStatus, ...], width: int, rows: int) -> Table:
    """Return a table of at most `rows` actors: activity, its duration, and in a wide terminal more.

    Where actors are left out, those with trouble and those at work stay, and a line counts the
    others.
    """
    space = 2 if width >= WIDE_COLUMNS else 1
    table = Table(box=None, padding=(0, space, 0, 0), header_style="dim")
    columns = ["actor", "doing", "for"]
    if width >= WIDE_COLUMNS:
        columns = ["actor", "pid", "doing", "for", "leases", "rtt", "restarts", "last cause"]
    elif width >= NARROW_COLUMNS:
        columns += ["restarts", "last cause"] if any(map(_has_trouble, workers)) else []
    shown = _workers_to_show(workers, rows)
    cells = [_cells(worker) for worker in shown]
    for title in columns:
        # Long activities and causes give way to the other columns.
        longest = max([len(title), *(len(row[title]) for row in cells)])
        least = None if title in ("doing", "last cause") else min(longest, MAX_COLUMN)
        table.add_column(title, no_wrap=True, overflow="ellipsis", min_width=least)
    for row in cells:
        table.add_row(*(Text(formatting.printable(row[title])) for title in columns))
    if len(shown) < len(workers):
        idle = sum(not worker.activity for worker in workers if worker not in shown)
        hidden = len(workers) - len(shown)
        table.add_row("…", *[""] * (columns.index("doing") - 1), f"{hidden} more, {idle} idle")
    return table


def _has_trouble(worker: WorkerStatus) -> bool:
    return bool(worker.restarts or worker.cause)


def _workers_to_show(workers: tuple[WorkerStatus, ...], rows: int) -> list[WorkerStatus]:
    if len(workers) <= rows:
        return list(workers)
    ranked = sorted(workers, key=lambda worker: (not worker.cause, not worker.activity))
    kept = ranked[: rows - 1]
    return [worker for worker in workers if worker in kept]


def _cells(worker: WorkerStatus) -> dict[str, str]:
    """Return what each column shows of an actor."""
    return {
        "actor": worker.slot,
        "pid": str(worker.pid or "–"),
        "doing": worker.activity or ("idle" if worker.state == "up" else worker.state),
        "for": formatting.clock_time(worker.seconds) if worker.seconds is not None else "",
        "leases": str(worker.leases or ""),
        "rtt": formatting.duration(worker.rtt_ms * 1000) if worker.rtt_ms is not None else "",
        "restarts": str(worker.restarts or ""),
        "last cause": worker.cause,
    }
