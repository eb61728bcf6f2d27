"""The parts of report.html: each turns one thing into HTML, and escapes all of it.

Works offline and without JavaScript: folding is `<details>`, pictures are inline SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from actors.supervisor.reporting import formatting, run_results
from actors.supervisor.reporting.best_so_far_svg import best_so_far_svg
from actors.supervisor.reporting.report_edits import diff_html
from actors.supervisor.reporting.snapshot import NodeView, Snapshot, Spend, SpendRow, TaskState
from protocol import settings as settings_file
from protocol.settings import Settings

STYLE = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
MAX_TREE_DEPTH = 200  # browsers cut deeper nesting themselves


def html_page(title: str, body: Iterable[str]) -> str:
    """Return a whole document."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"{''.join(body)}</main></body></html>\n"
    )


def heading(snapshot: Snapshot, settings: Settings) -> str:
    """Return the top of the report."""
    return (
        f"<h1>{escape(', '.join(task.name for task in snapshot.tasks))}</h1>"
        f'<p class="soft">run {escape(snapshot.run_id)} · {escape(snapshot.status)}'
        f"{escape(': ' + snapshot.reason if snapshot.reason else '')}"
        f" · {formatting.clock_time(snapshot.seconds)} · model "
        f"{escape(formatting.model_line(settings))}"
        f" · {escape(formatting.search_line(settings))}</p>"
    )


def cards(task: TaskState) -> str:
    """Return the figures that a reader looks for first."""
    best = task.best
    attempts = task.attempts
    shown = best or task.closest
    eager_us = task.eager_us(shown)
    said = "confirmed" if best and best.confirmed else "first look"
    name = f"speed-up against eager, {said}" if best else "speed-up against eager"
    facts = (
        (name, formatting.speedup(best.verdict) if best else "nothing faster"),
        ("best, a call", formatting.duration(task.shown_us(best)) if best else "–"),
        ("reference, a call", formatting.duration(eager_us)),
        ("attempts", f"{len(attempts)} of {task.budget}"),
        ("compiled", str(sum(node.verdict.is_compiled for node in attempts))),
        ("correct", str(sum(node.verdict.is_correct for node in attempts))),
    )
    inside = "".join(
        f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in facts
    )
    problem = f'<p class="bad">{escape(task.problem)}</p>' if task.problem else ""
    notes = "".join(f'<p class="bad">{escape(note)}</p>' for note in task.notes)
    standing = f"<p>{escape(formatting.best_line(task))}.</p>" if not task.problem else ""
    ranked = (
        f"{formatting.CLOCK_NOTE} Ranked by {formatting.ranking_device(task)}. {formatting.MODE}"
    )
    return (
        f'{problem}{notes}<div class="cards">{inside}</div>{standing}'
        f'<p class="soft">{escape(ranked)}</p>'
    )


def chart(task: TaskState) -> str:
    """Return the best-so-far curve."""
    return (
        f"<h3>Best so far, by attempt</h3>{best_so_far_svg(task)}"
        '<p class="soft">Rings are first looks, and the line rises with those whose interval is'
        " above 1. Where the budget has ended, it ends at what was confirmed (the full dot), or at"
        " 1× where nothing was.</p>"
    )


def failures(task: TaskState) -> str:
    """Return the failures by kind, each with its most frequent reasons."""
    failed = [node for node in task.attempts if not node.verdict.is_correct]
    if not failed:
        return "<h3>Failures</h3><p>None.</p>"
    rows = []
    for word, count in formatting.counts(task).items():
        reasons = [node.verdict.reason for node in failed if node.verdict.verdict == word]
        if reasons:
            said = "<br>".join(escape(reason) for reason in list(dict.fromkeys(reasons))[:3])
            rows.append((f'<td class="bad">{escape(word)}</td>', _number(str(count)), _cell(said)))
    return "<h3>Failures by kind</h3>" + _table(("verdict", "attempts", "reasons"), rows)


def tree(task: TaskState) -> str:
    """Return the tree, folded open, the winner marked."""
    below: dict[int, list[NodeView]] = {}
    for node in task.attempts:
        below.setdefault(node.parent or 0, []).append(node)
    eager = formatting.duration(task.reference.eager_us) if task.reference else "not measured"
    best = task.best.number if task.best else None
    inside = _branches(task, below, best)
    return f'<h3>Tree</h3><ul class="tree"><li>0 · the reference, {escape(eager)}{inside}</li></ul>'


def _branches(task: TaskState, below: dict[int, list[NodeView]], best: int | None) -> str:
    """Return what hangs below the root; walked with a stack, for a chain can be long."""
    parts: list[str] = []
    waiting: list[str | tuple[int, int]] = [(0, 0)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        number, depth = item
        children = below.get(number, [])
        if not children or depth >= MAX_TREE_DEPTH:
            continue
        opened: list[str | tuple[int, int]] = ["<ul>"]
        for node in children:
            opened += [f"<li>{_leaf(task, node, best)}", (node.number, depth + 1), "</li>"]
        waiting += reversed([*opened, "</ul>"])
    return "".join(parts)


def _leaf(task: TaskState, node: NodeView, best: int | None) -> str:
    kind = "best" if node.number == best else "ok" if node.verdict.is_correct else "bad"
    star = " ★" if node.number == best else ""
    return (
        f'{node.number} · <span class="{kind}">{escape(formatting.result(task, node))}{star}</span>'
        f' <span class="soft">{escape(formatting.node_summary(node, 110))}</span>'
    )


def attempts(task: TaskState) -> str:
    """Return the table of all attempts."""
    best = task.best.number if task.best else None
    rows = []
    for node in task.attempts:
        verdict = node.verdict
        kind = "ok" if verdict.is_correct else "bad"
        first = node.first_verdict
        looks = (first, verdict) if first is not verdict else (verdict,)
        spent = sum(one.seconds.build + one.seconds.check + one.seconds.time for one in looks)
        itself = ", the module itself" if verdict.is_renamed_reference else ""
        rows.append(
            (
                _number(str(node.number)),
                _number(str(node.parent)),
                f'<td class="{kind}">{escape(verdict.verdict)}{itself}</td>',
                _number(escape(formatting.speedup(first) if first.is_correct else "")),
                _number(escape(formatting.speedup(verdict) if node.confirmed else "")),
                _number(
                    escape(formatting.duration(task.shown_us(node) if verdict.is_correct else None))
                ),
                _number(f"{spent:.1f} s"),
                _cell(escape(formatting.node_summary(node, 200))),
            )
        )
    titles = (
        *("node", "from", "verdict", "first look", "confirmed", "a call", "judged in"),
        "advice or reason",
    )
    wins = [node.number == best for node in task.attempts]
    return f"<details><summary>All attempts</summary>{_table(titles, rows, wins)}</details>"


def release(task: TaskState) -> str:
    """Return what the winner passed as a drop-in module."""
    if task.best is None:
        return ""
    checked = task.best.verdict.release is not None
    lines = run_results.release_lines(run_results.release_of(task, task.best), checked=checked)
    return "<h3>Release checks</h3>" + "".join(f"<p>{escape(line)}</p>" for line in lines)


def winner(task: TaskState, source: str, task_source: str) -> str:
    """Return the winner's source and its unified diff against the task."""
    if task.best is None:
        return f"<h3>Winner</h3><p>None: {escape(formatting.nothing_faster(task))}.</p>"
    title = "Winner" if task.best.confirmed else "Best so far, not confirmed yet"
    return (
        f"<h3>{title}: node {task.best.number}</h3>"
        f"<details open><summary>Source</summary><pre>{escape(source)}</pre></details>"
        f"<details><summary>Diff against the task</summary><pre>"
        f"{diff_html(task_source, source, 'task', 'winner')}</pre>"
        "</details>"
    )


def spend(snapshot: Snapshot, by_role: Sequence[SpendRow]) -> str:
    """Return what each task and role took, and the whole run."""
    rows = [_spend_row(row.task, row.role, row.model, row.spend) for row in by_role]
    total = formatting.total_spend([task.spend for task in snapshot.tasks])
    rows.append(_spend_row("all", "", "", total))
    titles = ("task", "role", "model", "calls", "lost", "tokens in", "cached", "out", "USD", "s")
    return f"<h2>Spend</h2>{_table(titles, rows)}"


def _spend_row(task: str, role: str, model: str, spent: Spend) -> tuple[str, ...]:
    counts = (spent.calls, spent.lost, spent.input_tokens, spent.cached_tokens, spent.output_tokens)
    return (
        *(_cell(escape(word)) for word in (task, role, model)),
        *(_number(f"{count:,}") for count in counts),
        _number("unknown" if spent.usd is None else f"{spent.usd:.4f}"),
        _number(f"{spent.seconds:.0f}"),
    )


def hardware(snapshot: Snapshot, settings: Settings) -> str:
    """Return what the run ran on, and the settings that were used."""
    references = [task.reference for task in snapshot.tasks if task.reference]
    device = references[0].device if references else None
    facts = {"device": device.name, "fingerprint": device.fingerprint} if device else {}
    facts |= device.facts if device else {}
    rows = [(_cell(escape(name)), _cell(escape(value))) for name, value in facts.items()]
    return (
        f"<h2>Hardware</h2>{_table(('what', 'value'), rows)}"
        "<h2>Settings</h2><details><summary>stark.toml</summary>"
        f"<pre>{escape(settings_file.to_toml(settings))}</pre></details>"
    )


def _cell(inside: str) -> str:
    return f"<td>{inside}</td>"


def _number(inside: str) -> str:
    return f'<td class="n">{inside}</td>'


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], wins: Sequence[bool] = ()) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    marks = [*wins, *([False] * (len(rows) - len(wins)))]
    body = "".join(
        f"<tr{' class=win' if win else ''}>{''.join(row)}</tr>"
        for row, win in zip(rows, marks, strict=True)
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
