"""Directives in the real coordinator: each verb does what it says, once, or is refused whole."""

from __future__ import annotations

import pytest
from in_process_run import InProcessRun, MakeRun

from protocol import messages, questions
from protocol.directives import waiting_files
from protocol.values import Role


def test_a_pause_leases_nothing_and_go_goes_on(make_run: MakeRun) -> None:
    """What runs ends normally; the pause holds over a restart of the coordinator."""
    run = make_run()
    run.run_to(2)
    assert ("applied", "") == run.steer("pause")
    run.rounds()
    leases = run.leases()
    run.crash()
    run.start()
    run.rounds(10)
    assert leases == run.leases()
    assert [(0,)] == run.rows("SELECT COUNT(*) FROM lease WHERE ended IS NULL")
    assert ("refused", "the run is paused already") == run.steer("pause")
    assert ("applied", "") == run.steer("go")
    run.run_out()
    assert "finished" == run.status
    assert 8 == run.attempts_done()


def test_a_directive_waits_while_no_coordinator_runs(make_run: MakeRun) -> None:
    """The spool is durable: what is submitted meanwhile holds from the next start on."""
    run = make_run()
    run.run_to(2)
    run.crash()
    key = run.submit("pause")
    assert ("wanted", "") == run.state(key)
    run.start()
    run.round()
    leases = run.leases()
    run.rounds()
    assert ("applied", "") == run.state(key)
    assert leases == run.leases()


def test_a_smaller_budget_ends_the_run_and_done_attempts_are_kept(make_run: MakeRun) -> None:
    """A budget below what has begun is refused with the number."""
    run = make_run()
    run.run_to(3)
    state, reason = run.steer("budget", attempts=2)
    assert "refused" == state
    assert "name that number or more" in reason
    assert ("applied", "") == run.steer("budget", attempts=5)
    run.run_out()
    assert 5 == run.attempts_done()
    assert [] == run.differences()


def test_a_larger_budget_waits_for_the_second_looks_and_then_goes_on(make_run: MakeRun) -> None:
    """Submitted at any moment before the run is over, it is applied."""
    run = make_run(budget=4)
    search = run.coordinator.tasks.search("t")
    run.until(lambda: search.confirming is not None)
    key = run.submit("budget", attempts=7)
    sent = len(run.socket.sent)
    run.run_out()
    assert ("applied", "") == run.state(key)
    assert 7 == run.attempts_done()
    assert [] == run.differences()
    # What agents are shown from then on is what is stored, as after a restart.
    stored = dict(run.rows("SELECT number, score_us FROM node"))
    work = [one for one in run.socket.sent[sent:] if isinstance(one, messages.AgentRequest)]
    shown = {(view.node, view.score_us) for one in work for view in (one.node, *one.window)}
    (confirmed,) = run.rows("SELECT number FROM first_look LIMIT 1")[0]
    assert (confirmed, stored[confirmed]) in shown
    assert all(stored[number] == score for number, score in shown)


def test_a_persons_budget_and_cap_hold_until_a_command_names_others(make_run: MakeRun) -> None:
    """Over a crash, and over a resume that names neither; --budget and --max-cost win."""
    run = make_run()
    run.crash()
    run.start("first")
    run.run_to(1)
    run.steer("budget", attempts=20)
    run.steer("cap", usd=2.5)
    in_force = "SELECT budget, (SELECT cap_usd FROM run) FROM task"
    for supervisor in ("first", "second"):
        run.crash()
        run.start(supervisor)
        assert [(20, 2.5)] == run.rows(in_force)
    run.crash()
    run.start("third", named=("budget", "max_cost"))
    assert [(8, None)] == run.rows(in_force)
    run.steer("budget", attempts=10)
    run.crash()
    run.start("third", named=("budget", "max_cost"))
    assert [(10, None)] == run.rows(in_force)


def reserve(run: InProcessRun, usd: float) -> None:
    """Have the planner that holds a lease ask for the money for a call."""
    (grant,) = run.coordinator.scheduler.grants.values()
    run.socket.deliver(
        grant.incarnation,
        messages.ReserveBudget(
            lease=grant.lease, call_number=1, model="fake", request_key="k", usd=usd
        ),
    )


@pytest.mark.parametrize(("before", "after", "is_allowed"), [(0.1, 5.0, True), (None, 0.1, False)])
def test_a_cap_holds_for_the_next_call(
    make_run: MakeRun, before: float | None, after: float, is_allowed: bool
) -> None:
    """A larger cap allows a call that --max-cost would not; a smaller one stops the run."""
    run = make_run(max_cost=before)
    run.run_to(1)
    run.silent_roles.update(Role)
    run.rounds()
    assert ("applied", "") == run.steer("cap", usd=after)
    reserve(run, 0.5)
    run.rounds(2)
    assert is_allowed == isinstance(run.socket.sent[-1], messages.BudgetReserved)
    assert ("running" if is_allowed else "draining") == run.rows("SELECT status FROM run")[0][0]


def test_finish_ends_with_the_results(make_run: MakeRun) -> None:
    """No attempt is begun any more, the best is judged again, and the run is finished."""
    run = make_run(in_flight=2)
    run.run_to(3)
    run.steer("pause")
    begun = len(run.parents())
    assert ("applied", "") == run.steer("finish")
    run.crash()
    run.start()
    run.run_out()
    assert "finished" == run.status
    assert begun == len(run.parents()) == run.attempts_done()
    assert [] == run.differences()


def test_finish_leaves_tasks_that_have_not_begun(make_run: MakeRun) -> None:
    """Such a run is stopped and can be resumed: its other tasks have no results."""
    run = make_run(tasks=("a", "b", "c"), tasks_at_once=1, budget=3)
    run.until(lambda: len(run.rows("SELECT 1 FROM attempt WHERE task = 'a'")) > 1)
    run.steer("finish")
    run.crash()
    run.start()
    run.run_out()
    assert "stopped" == run.status
    assert [("a", "finished"), ("b", "new"), ("c", "new")] == run.rows(
        "SELECT name, status FROM task ORDER BY name"
    )
    run.crash()
    run.start()
    run.run_out()
    assert "finished" == run.status


def test_a_boosted_node_gets_the_next_attempts(make_run: MakeRun) -> None:
    """K attempts, also over a crash in between."""
    run = make_run(budget=12)
    run.run_to(4)
    begun = max(run.parents())
    assert ("applied", "") == run.steer("boost", 1, count=3)
    run.run_to(begun + 1)
    run.crash()
    run.start()
    run.run_out()
    first = max(number for number in run.parents() if number <= begun) + 1
    assert [1, 1, 1] == [run.parents()[n] for n in range(first, first + 3)]
    assert [] == run.differences()


def test_pin_prune_and_their_undoing_are_kept_at_the_nodes(make_run: MakeRun) -> None:
    """The page reads the columns; a node below a pruned one is pruned when it is recorded."""
    run = make_run(budget=14)
    run.run_to(5)
    run.steer("pin", 2)
    run.steer("prune", 1)
    assert [(2,)] == run.rows("SELECT number FROM node WHERE pinned")
    run.run_to(10)
    run.crash()
    run.start()
    tree = run.coordinator.tasks.search("t").tree
    pruned = {number for (number,) in run.rows("SELECT number FROM node WHERE pruned")}
    assert {node.number for node in tree.nodes.values() if node.is_pruned} == pruned
    assert 1 in pruned
    assert ("applied", "") == run.steer("unprune", 1)
    assert ("applied", "") == run.steer("unpin", 2)
    assert [] == run.rows("SELECT number FROM node WHERE pruned OR pinned")
    run.run_out()
    assert [] == run.differences()


def test_advice_reaches_the_planner_of_its_place(make_run: MakeRun) -> None:
    """It is in the work of later attempts at the node or below, and not in others."""
    run = make_run(budget=12)
    run.run_to(3)
    run.steer("advise", text="all: use float4")
    run.steer("advise", 1, text="below 1: tile over K")
    run.steer("advise", 2, text="2 alone", scope="node")
    sent = len(run.socket.sent)
    run.run_out()
    parents = run.parents()
    plans = [one for one in run.socket.sent[sent:] if isinstance(one, messages.MakePlan)]
    assert plans
    for plan in plans:
        path, at = [], plan.node.node
        while at is not None:
            path.append(at)
            at = parents.get(at)
        expected = ["all: use float4"]
        expected += ["below 1: tile over K"] if 1 in path else []
        expected += ["2 alone"] if path[0] == 2 else []
        assert expected == list(plan.person_advice)


def test_advice_can_be_replaced_and_taken_back(make_run: MakeRun) -> None:
    """The latest text of a place holds; an empty one ends it."""
    run = make_run(budget=12)
    run.run_to(2)
    run.submit("advise", text="first", key="a")
    run.submit("advise", text="second", key="b")
    run.run_to(4)
    run.steer("advise", text="")
    sent = len(run.socket.sent)
    run.run_out()
    later = {m.person_advice for m in run.socket.sent[sent:] if isinstance(m, messages.MakePlan)}
    seen = {m.person_advice for m in run.socket.sent[:sent] if isinstance(m, messages.MakePlan)}
    assert {()} == later
    assert ("first",) not in seen


def test_an_injected_source_is_judged_as_any(make_run: MakeRun) -> None:
    """It is an attempt of the budget, its verdict is the judge's, and its parent is the named."""
    run = make_run()
    run.run_to(2)
    source = "class ModelNew: ...  # mine\n"
    assert ("applied", "") == run.steer("inject", 1, source=source, text="my tile size")
    (number,) = run.rows("SELECT attempt FROM directive WHERE verb = 'inject'")[0]
    run.run_out()
    (row,) = [row for row in run.nodes() if row[0] == number]
    assert (number, 1, source, "a person's source: my tile size") == row[:4]
    assert [("inject",)] == run.rows("SELECT kind FROM attempt WHERE number = ?", number)
    assert 8 == run.attempts_done()
    assert [] == run.differences()


def test_a_rejected_node_is_neither_parent_nor_winner(make_run: MakeRun) -> None:
    """Its row says so, and keeps what the judge said."""
    run = make_run(budget=10)
    run.run_to(4)
    (best,) = run.rows("SELECT number FROM node WHERE number > 0 ORDER BY score_us LIMIT 1")[0]
    begun = max(run.parents())
    assert ("applied", "") == run.steer("reject", best, text="it caches")
    run.crash()
    run.start()
    run.run_out()
    (word, score) = run.rows("SELECT word, score_us FROM node WHERE number = ?", best)[0]
    assert ("rejected", None) == (word, score)
    assert [(best,)] == run.rows("SELECT number FROM rejection")
    later = {parent for number, parent in run.parents().items() if number > begun}
    assert best not in later
    assert [] == run.rows("SELECT 1 FROM node WHERE confirmed = 1 AND number = ?", best)
    assert [] == run.differences()


def test_a_winner_rejected_after_the_end_is_replaced_on_resume(make_run: MakeRun) -> None:
    """The next best node is judged again, and the tree stays as it is."""
    run = make_run(budget=6)
    run.run_out()
    (best,) = run.rows("SELECT number FROM node WHERE confirmed = 1 ORDER BY score_us LIMIT 1")[0]
    run.crash()
    run.submit("reject", best, text="wrong at size 0")
    run.start()
    run.run_out()
    confirmed = {n for (n,) in run.rows("SELECT number FROM node WHERE confirmed = 1")}
    assert confirmed - {best}
    assert 6 == run.attempts_done()
    assert [] == run.differences()


def test_an_answer_settles_its_question_once(make_run: MakeRun) -> None:
    """The first answer counts; a question that nothing asked is refused."""
    run = make_run()
    run.run_to(1)
    questions.ask(run.run_dir, "planner-2-abc", "what?")
    assert "refused" == run.steer("answer", question="planner-9-abc", text="so")[0]
    assert ("applied", "") == run.steer("answer", question="planner-2-abc", text="so")
    for text in ("so", "otherwise"):
        state, reason = run.steer("answer", question="planner-2-abc", text=text)
        assert ("refused", True) == (state, "has an answer" in reason)
    assert "so" == questions.answer_path(run.run_dir, "planner-2-abc").read_text()


REFUSED = [
    ("pin", 99, {}, "there is no node 99"),
    ("unpin", 1, {}, "is not pinned"),
    ("prune", 0, {}, "is the root"),
    ("unprune", 1, {}, "is not pruned"),
    ("reject", 0, {"text": "no"}, "can't be rejected"),
    ("inject", 77, {"source": "class ModelNew: ..."}, "there is no node 77"),
    ("go", None, {}, "is not paused"),
    ("pin", 1, {"task": "other"}, "there is no task other"),
]


@pytest.mark.parametrize(("verb", "node", "more", "reason"), REFUSED)
def test_a_refused_directive_changes_nothing(
    make_run: MakeRun, verb: str, node: int | None, more: dict[str, str], reason: str
) -> None:
    """One line says why, and the run goes on as an unsteered one."""
    run, unsteered = make_run(), make_run()
    run.run_to(2)
    state, said = run.steer(verb, node, **more)
    assert ("refused", True) == (state, reason in said)
    assert 1 == len(said.splitlines())
    run.run_out()
    unsteered.run_out()
    assert unsteered.nodes() == run.nodes()


def test_verbs_of_nodes_are_refused_where_no_policy_chooses(make_run: MakeRun) -> None:
    """`--strategy sampling` would not obey, so it does not pretend to."""
    run = make_run(strategy="sampling")
    run.run_to(2)
    for verb in ("pin", "boost", "prune"):
        assert "refused" == run.steer(verb, 1)[0]
    assert ("applied", "") == run.steer("reject", 1, text="it cheats")


def test_a_file_that_is_no_directive_is_refused_by_its_name(make_run: MakeRun) -> None:
    """Garbage in the spool neither stops the run nor stays there."""
    run = make_run()
    run.run_to(1)
    folder = run.run_dir / "directives"
    folder.mkdir(exist_ok=True)
    (folder / "garbage.json").write_text("{")
    (folder / "a b.json").write_text("{")
    run.rounds(2)
    assert [("garbage", "refused")] == run.rows("SELECT key, state FROM directive")
    assert [] == waiting_files(run.run_dir)
