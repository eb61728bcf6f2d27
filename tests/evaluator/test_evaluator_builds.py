"""Laws of builds in the judge: built once, private, stored whole, and in order when ahead."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from evaluator_samples import (
    LIMITS,
    ContextRecorder,
    candidate,
    descendants,
    settles,
    wrong_candidate,
)

from actors.evaluator.fastbuild import UNFINISHED_PREFIX, BuildSlots, BuildStore, slots_here
from actors.evaluator.ipc.orders import FromToolkitBuilder, PrepareToolkit, ToolkitPrepared
from actors.evaluator.judge import Judge
from actors.evaluator.ordered_judging import judge_in_order
from actors.evaluator.sandbox.child_client import ChildClient, EvaluationCancelledError
from actors.evaluator.sandbox.confinement import ConfinementFactory
from protocol.values import Outcome, Task, Verdict

# Wrong on purpose: only the build counts, and the verdict comes without any timing.
WRONG = candidate(
    before='''
from torch.utils.cpp_extension import load_inline
module = load_inline(name="stamped", functions=["scaled", "stamp"], cpp_sources="""
torch::Tensor scaled(torch::Tensor x, double by) { return x * by; }
std::string stamp() { return __TIME__; }
""")
''',
    forward="return torch.relu(module.scaled(x, self.scale) + y) - self.bias",
)

WRITER = """
# cpp_extension
import os, pathlib
store = pathlib.Path(os.environ.get("STARK_TOOLKITS", "/nowhere"))
found = sorted(store.glob("*/*"))
said = ["toolkits" if found else "nothing"]
for path in [store / "mine", *found, *(each / "mine" for each in found)]:
    for act in (path.unlink, path.touch, lambda: path.write_text("poison"), path.mkdir,
                lambda: path.chmod(0o777), lambda: path.rename(path.with_name("moved"))):
        try:
            act()
        except OSError:
            continue
        said.append(f"changed {path}")
try:
    said.append(f"results {os.listdir(store.parent / 'results')}")
except OSError:
    pass
raise ValueError(", ".join(["seen:", *said, "end"]))
"""


def state(folder: Path) -> list[tuple[str, int, int]]:
    """Return what tells whether anything in `folder` was changed."""
    found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), stat.st_mtime_ns, stat.st_size) for path, stat in found]


@pytest.fixture(scope="module")
def ahead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A judge that builds ahead of its measurements, as a judge with a GPU does."""
    made = Judge("cpu", LIMITS, tmp_path_factory.mktemp("ahead") / "judge", ahead=2)
    yield made
    made.close()


def test_a_candidate_judged_twice_is_compiled_once(judge: Judge, task: Task) -> None:
    """The second judgement finds the first one's library, with the time of the first build."""
    raises = WRONG.replace("return torch.relu", "raise ValueError(module.stamp()) #")
    first, second = judge.judge(task, raises), judge.judge(task, raises)
    assert isinstance(first, Verdict)
    assert isinstance(second, Verdict)
    assert re.search(r"ValueError: \d\d:\d\d:\d\d", first.reason), first
    assert first.reason == second.reason


def test_a_candidate_changes_nothing_in_the_store(
    judge: Judge, task: Task, build_store: BuildStore
) -> None:
    """It can read the toolkit that it is built with, writes nothing, and sees no other results."""
    judge.judge(task, WRONG)
    before = state(build_store.toolkits)
    verdict = judge.judge(task, WRITER)
    assert isinstance(verdict, Verdict)
    seen = "toolkits" if judge.level >= 2 else "nothing"
    assert f"ValueError: seen:, {seen}, end" == verdict.reason
    assert before == state(build_store.toolkits)


def test_a_stored_result_takes_no_build_slot(
    judge: Judge, task: Task, build_store: BuildStore
) -> None:
    """The device waits for it, while other candidates' compilers have all slots."""
    judge.judge(task, WRONG)
    slots = BuildSlots(build_store.slots, slots_here())
    with ExitStack() as held:
        for _slot in range(slots.count):
            held.enter_context(slots.acquired(60.0))
        verdict = judge.judge(task, WRONG, ContextRecorder(revoked_after_s=60.0))
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.WRONG


def test_a_toolkit_builder_killed_half_way_leaves_a_usable_store(
    judge: Judge, task: Task, tmp_path: Path
) -> None:
    """Its unfinished folder is not a toolkit, its lock is free, and another builder can start."""
    store = BuildStore(tmp_path / "store")
    assert store.make_folders()
    judge.judge(task, wrong_candidate())  # starts the zygote
    confinements = ConfinementFactory("cpu", LIMITS, (), store)
    before = descendants(os.getpid())
    for _attempt in range(2):
        toolkit_builder: ChildClient[ToolkitPrepared] = judge.session.zygote.spawn(
            "builder",
            confinements.toolkit_confinement(store, ""),
            FromToolkitBuilder,
            trusted=False,
        )
        toolkit_builder.channel.send(PrepareToolkit(limit_s=60.0))
        halves = set(store.toolkits.glob(f"{UNFINISHED_PREFIX}*"))
        until = time.monotonic() + 60.0
        # Its scratch and the toolkit that it makes: it holds the lock by then.
        while len(set(store.toolkits.glob(f"{UNFINISHED_PREFIX}*")) - halves) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        toolkit_builder.kill()
        assert settles(os.getpid(), before, 20.0)
    made = [
        path for path in store.toolkits.iterdir() if not path.name.startswith(UNFINISHED_PREFIX)
    ]
    assert [store.toolkits / "lock"] == made


def test_with_builds_ahead_verdicts_are_the_same_and_in_order(
    ahead: Judge, judge: Judge, task: Task
) -> None:
    """The order of builds does not change the order of verdicts."""
    slow = "# cpp_extension\nimport time; time.sleep(0.5)"
    sources = [
        candidate(before=slow, forward="return x"),
        candidate(before="# cpp_extension", forward="raise ValueError('late')"),
        candidate(before="# cpp_extension\nraise ValueError('mine')"),
        WRONG,
        candidate(forward="return y, x"),
    ]
    found = list(judge_in_order(ahead, task, sources))
    alone = [judge.judge(task, source) for source in sources]
    expected = [
        Outcome.WRONG,
        Outcome.CRASHED,
        Outcome.COMPILE_FAILED,
        Outcome.WRONG,
        Outcome.WRONG,
    ]
    assert expected == [verdict.verdict for verdict in found if isinstance(verdict, Verdict)]
    assert expected == [verdict.verdict for verdict in alone if isinstance(verdict, Verdict)]


def test_a_cancelled_build_ahead_ends(ahead: Judge, task: Task) -> None:
    """A revoked lease ends its build and its processes; other builds go on."""
    ahead.build("# cpp_extension")  # starts the zygote of builds
    before = descendants(os.getpid())
    slow = "# cpp_extension\nimport time; time.sleep(300)"
    with pytest.raises(EvaluationCancelledError):
        ahead.build(slow, context=ContextRecorder(revoked_after_s=1.0))
    assert settles(os.getpid(), before, 20.0)
    other = candidate(before="# cpp_extension", forward="return x")
    built = ahead.build(other)
    assert built is not None
    verdict = ahead.judge(task, other, built=built)
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.WRONG
    assert not built.has_folder


def test_a_build_whose_folder_is_gone_is_repeated(ahead: Judge, task: Task) -> None:
    """Its zygote was killed after the build: that is not the candidate's fault."""
    built = ahead.build(WRONG)
    assert built is not None
    zygotes = [pid for pid in descendants(os.getpid()) if _is_build_zygote(pid)]
    for pid in zygotes:
        os.kill(pid, 9)
    ahead._build_ahead.remove(built)  # type: ignore[union-attr]  # as its zygote does in the end
    verdict = ahead.judge(task, WRONG, built=built)
    assert isinstance(verdict, Verdict)
    assert verdict.verdict is Outcome.WRONG
    assert ahead.build("# cpp_extension") is not None


def _is_build_zygote(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"actors.evaluator.children.zygote" in command and b"-builds" in command
