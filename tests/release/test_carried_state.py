"""Laws of modules that keep a state in a plain attribute: a winner's kernels carry it on."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from drop_in_samples import imported, judged
from drop_in_samples import pair as modules_and_inputs
from msgspec.structs import replace

from actors.evaluator.children.carried_state import find_carried
from actors.evaluator.children.release_checks import gpu_release_checks
from actors.evaluator.children.task_module import TaskModule
from actors.evaluator.ipc.runner_orders import ReleaseChecked
from actors.evaluator.release_stage import CHECKS, NO_COMPILER_CHECK, essential_failure
from actors.release.composition import drop_in_source
from protocol.release import LIMITS, Release

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
# KernelBench's VanillaRNN, small; without `initial` a call goes on from the one before.
RNN = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.hidden = torch.randn((4, width))
        self.i2h = nn.Linear(2 * width, width)
        self.h2o = nn.Linear(width, 3)
        self.tanh = nn.Tanh()

    def forward(self, x, initial=None):
        if initial is not None:
            self.hidden.copy_(initial)
        self.hidden = self.hidden.to(x.device)
        self.hidden = self.tanh(self.i2h(torch.cat((x, self.hidden), dim=1)))
        return self.h2o(self.hidden)

def get_inputs():
    return [torch.rand(4, 8), torch.rand(4, 8)]

def get_init_inputs():
    return [8]
"""
STREAM = RNN.replace("torch.rand(4, 8), torch.rand(4, 8)", "torch.rand(4, 8)")
# The sum of all rows so far, which each call adds to in place.
IN_PLACE = STREAM.replace(
    "        if initial is not None:\n            self.hidden.copy_(initial)\n"
    "        self.hidden = self.hidden.to(x.device)\n"
    "        self.hidden = self.tanh(self.i2h(torch.cat((x, self.hidden), dim=1)))\n",
    "        self.hidden.mul_(0.5).add_(x)\n",
)
CANDIDATE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        {attribute}
        self.i2h = nn.Linear(2 * width, width)
        self.h2o = nn.Linear(width, 3)
        self.calls = 0

    def step(self, x, h):
        w, b, v, c = (t.detach() for t in (*self.i2h.parameters(), *self.h2o.parameters()))
        new = torch.tanh(torch.cat((x.detach(), h.detach()), dim=1) @ w.t() + b)
        return new @ v.t() + c, new

    def forward(self, x, initial=None):
        self.calls += 1
        {body}
        return out
"""
HELD = "self.hidden = torch.randn((4, width))"
BEGIN = "h = self.hidden if initial is None else initial; "
HONEST = BEGIN + "out, self.hidden = self.step(x, h)"


def candidate(body: str = HONEST, attribute: str = HELD) -> str:
    return CANDIDATE.format(body=body, attribute=attribute)


def release_of(task: str, folder: Path) -> Release:
    """Return what the referee records of a task."""
    with contextlib.chdir(folder):
        own = TaskModule(task, "cpu")
    own.make(0)
    own.eager_outputs(own.inputs(0), 0)
    what = judged(imported(task, folder))
    return Release(judged=replace(what, carried=find_carried(own, 1)))


def file_of(folder: Path, source: str, task: str = RNN) -> Any:
    """Return the imported file of a winner."""
    return imported(drop_in_source(task, source, release_of(task, folder)), folder)


def pair(file: Any) -> tuple[Any, Any, list[torch.Tensor]]:
    """Return a plain module, a winner with its parameters and its state, and inputs."""
    plain, winner, inputs = modules_and_inputs(file)
    winner.hidden = plain.hidden.clone()
    return plain, winner, inputs


def check(folder: Path, source: str, task: str, name: str = "module state") -> ReleaseChecked:
    return gpu_release_checks.run_check(file_of(folder, source, task), "cpu", name)


IN_PLACE_HONEST = candidate(
    "h = self.hidden; h.mul_(0.5).add_(x); v, c = (t.detach() for t in self.h2o.parameters()); "
    "out = h @ v.t() + c"
)
HONEST_WINNERS = [(RNN, candidate()), (STREAM, candidate()), (IN_PLACE, IN_PLACE_HONEST)]


@pytest.mark.parametrize(
    "name", [each for each in (*CHECKS, NO_COMPILER_CHECK) if each != "compile"]
)
@pytest.mark.parametrize(("task", "source"), HONEST_WINNERS, ids=["rnn", "stream", "in place"])
def test_an_honest_winner_fails_no_check(tmp_path: Path, task: str, source: str, name: str) -> None:
    """Before: `wrong (fresh process: its hidden is not what its constructor makes)`."""
    checked = check(tmp_path, source, task, name)
    assert checked.passed or checked.skipped, checked.reason
    if name in ("fresh process", "module state", "state dict", "deepcopy", "pickle"):
        assert checked.passed, checked.reason


SLOPPY = {
    "has no such attribute": (candidate("out, _ = self.step(x, initial)", "pass"), RNN),
    "another name": (
        candidate(HONEST.replace("hidden", "state"), HELD.replace("hidden", "state")),
        STREAM,
    ),
    "never changed": (candidate(BEGIN + "out, _ = self.step(x, h)"), RNN),
    "a state of its own": (
        candidate(
            "out, self.own = self.step(x, self.own); self.hidden = self.own",
            HELD + "; self.own = self.hidden",
        ),
        STREAM,
    ),
    "changed in the first calls": (
        candidate(
            BEGIN + "out, new = self.step(x, h); "
            "self.hidden = new if self.calls < 5 else self.hidden"
        ),
        RNN,
    ),
    "changed in every second call": (
        candidate(
            BEGIN + "out, new = self.step(x, h); "
            "self.hidden = new if self.calls % 2 else self.hidden"
        ),
        STREAM,
    ),
    "kept by identity": (
        candidate(
            "h = self.kept if self.hidden is self.last else self.hidden; "
            "out, self.hidden = self.step(x, h); self.last = self.hidden; "
            "self.kept = self.hidden.clone()",
            HELD + "; self.last = self.kept = None",
        ),
        STREAM,
    ),
    "kept by address and version": (
        candidate(
            "at = (self.hidden.data_ptr(), self.hidden._version); "
            "h = self.kept if at == self.last else self.hidden; "
            "out, self.hidden = self.step(x, h); self.kept = self.hidden.clone(); "
            "self.last = (self.hidden.data_ptr(), self.hidden._version)",
            HELD + "; self.last = self.kept = None",
        ),
        STREAM,
    ),
    "written in place": (
        candidate(BEGIN + "out, new = self.step(x, h); self.hidden.copy_(new)"),
        RNN,
    ),
    "one buffer for all calls": (
        candidate(
            BEGIN + "out, new = self.step(x, h); self.hidden = self.buffers_[self.calls % 2]; "
            "self.hidden.copy_(new)",
            HELD + "; self.buffers_ = [torch.empty(4, width), torch.empty(4, width)]",
        ),
        STREAM,
    ),
    "the input itself": (candidate("out, _ = self.step(x, initial); self.hidden = initial"), RNN),
    "replaced, not changed in place": (
        IN_PLACE_HONEST.replace("h.mul_(0.5).add_(x)", "self.hidden = h = h * 0.5 + x"),
        IN_PLACE,
    ),
    "of another dtype": (candidate(HONEST + "; self.hidden = self.hidden.double()"), RNN),
}


@pytest.mark.parametrize("what", SLOPPY)
def test_a_winner_that_loses_the_state_is_found(tmp_path: Path, what: str) -> None:
    """Each is right in the outputs of single calls; a sequence of calls shows it."""
    source, task = SLOPPY[what]
    checked = check(tmp_path, source, task)
    assert (False, False) == (checked.passed, checked.skipped)
    assert "hidden" in checked.reason or "off by" in checked.reason, checked.reason


def test_calls_of_kernels_and_plain_forwards_continue_one_state(tmp_path: Path) -> None:
    """Half a batch is refused or plain, a gradient is plain; the state is always the module's."""
    plain, winner, _ = pair(file_of(tmp_path, candidate(), STREAM))
    for number in range(12):
        x = torch.rand(4, 8)
        with torch.set_grad_enabled(number % 4 == 3):
            torch.testing.assert_close(winner(x), plain(x))
        torch.testing.assert_close(winner.hidden, plain.hidden)
        assert winner.hidden.requires_grad is plain.hidden.requires_grad
        if number == 8:
            for module in (plain, winner):
                module.hidden = torch.ones(1, 8).expand(4, 8)  # other strides than judged
    # After a call with gradients, and after the expanded tensor, one more call is plain.
    assert 6 == winner.kernel_stats()["kernel"], winner.kernel_stats()


def test_the_state_may_be_an_input(tmp_path: Path) -> None:
    """Kernels might write the state before they have read it as an input: the call is plain."""
    plain, winner, (x, _) = pair(file_of(tmp_path, candidate(), RNN))
    with torch.no_grad():
        for _number in range(3):
            torch.testing.assert_close(winner(x, winner.hidden), plain(x, plain.hidden))
    assert 0 == winner.kernel_stats()["kernel"]


def test_a_copy_and_a_pickle_go_on_from_the_state(tmp_path: Path) -> None:
    """The state is the module's, so each copy has its own from there on."""
    plain, winner, (x,) = pair(file_of(tmp_path, candidate(), STREAM))
    with torch.no_grad():
        for module in (plain, winner):
            module(x)
        for copied in (copy.deepcopy(winner), pickle.loads(pickle.dumps(winner))):  # noqa: S301
            torch.testing.assert_close(copied(x), copy.deepcopy(plain)(x))
            assert 1 == copied.kernel_stats()["kernel"]
        torch.testing.assert_close(winner(x), plain(x))


def test_calls_in_threads_are_one_after_the_other(tmp_path: Path) -> None:
    """A state is that of some order of the calls: none is lost between two threads."""
    counting = STREAM.replace("self.hidden = self.hidden.to(x.device)", "").replace(
        "self.tanh(self.i2h(torch.cat((x, self.hidden), dim=1)))", "self.hidden + 1"
    )
    slow = candidate(
        "import time; h = self.hidden; time.sleep(0.001); self.hidden = h + 1; "
        "v, c = (t.detach() for t in self.h2o.parameters()); out = self.hidden @ v.t() + c"
    )
    _, winner, (x,) = pair(file_of(tmp_path, slow, counting))
    first = winner.hidden.clone()

    def calls() -> None:
        with torch.no_grad():
            for _number in range(10):
                winner(x)

    threads = [threading.Thread(target=calls) for _number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(winner.hidden, first + 30)
    assert 30 == winner.kernel_stats()["kernel"]


def test_a_constant_in_an_attribute_is_compared_as_before(tmp_path: Path) -> None:
    """Kernels may have its value built in; only what calls change is handed to them."""
    constant = (
        STREAM.replace("self.tanh = nn.Tanh()", "self.gain = torch.ones(3)")
        .replace("self.tanh(", "torch.tanh(")
        .replace("return self.h2o(self.hidden)", "return self.h2o(self.hidden) * self.gain")
    )
    plain, winner, (x,) = pair(
        file_of(tmp_path, candidate(attribute=HELD + "; self.gain = torch.ones(3)"), constant)
    )
    with torch.no_grad():
        torch.testing.assert_close(winner(x), plain(x))
        for module in (plain, winner):
            module.gain.mul_(2)
        torch.testing.assert_close(winner(x), plain(x))
    assert 1 == winner.kernel_stats()["kernel"]


GROWING = STREAM.replace(
    "        return self.h2o(",
    "        self.cache = torch.cat([self.cache, x])\n        return self.h2o(",
).replace("self.tanh = nn.Tanh()", "self.tanh, self.cache = nn.Tanh(), torch.zeros(0, width)")


def test_a_state_that_changes_its_form_runs_the_plain_forward(tmp_path: Path) -> None:
    """A cache that grows has another shape at each call, for which kernels were not judged."""
    grown = candidate(HONEST + "; self.cache = torch.cat([self.cache, x])",
                      HELD + "; self.cache = torch.zeros(0, width)")  # fmt: skip
    plain, winner, (x,) = pair(file_of(tmp_path, grown, GROWING))
    with torch.no_grad():
        for _number in range(2):
            torch.testing.assert_close(winner(x), plain(x))
    torch.testing.assert_close(winner.cache, plain.cache)
    (reason,) = winner.kernel_stats()["reasons"]
    assert "changes its attribute cache, which its constructor makes in another form" in reason


LAZY = STREAM.replace("self.hidden = torch.randn((4, width))", "self.hidden = None").replace(
    "        if initial is not None:\n            self.hidden.copy_(initial)\n"
    "        self.hidden = self.hidden.to(x.device)\n",
    "        if self.hidden is None:\n            self.hidden = torch.zeros_like(x)\n",
)
LAZY_HELD = {"attribute": "self.hidden = None"}
LAZY_BEGIN = "h = torch.zeros_like(x) if self.hidden is None else self.hidden; "


def test_a_state_that_the_first_call_makes_is_carried(tmp_path: Path) -> None:
    """It is None at first, and may be None again."""
    source = candidate(LAZY_BEGIN + "out, self.hidden = self.step(x, h)", **LAZY_HELD)
    for name in ("fresh process", "module state", "deepcopy", "state dict"):
        checked = check(tmp_path, source, LAZY, name)
        assert checked.passed, checked.reason
    own = candidate(
        LAZY_BEGIN.replace("hidden", "own") + "out, self.own = self.step(x, h)",
        "self.own = self.hidden = None",
    )
    checked = check(tmp_path, own, LAZY)
    assert (False, False) == (checked.passed, checked.skipped)
    assert "hidden" in checked.reason


def test_a_compiled_winner_holds_the_plain_forward(tmp_path: Path) -> None:
    """A graph's operator has no attributes of the module."""
    plain, winner, (x,) = pair(file_of(tmp_path, candidate(), STREAM))
    torch._dynamo.reset()
    compiled = torch.compile(winner, backend="eager")
    with torch.no_grad():
        for _number in range(3):
            torch.testing.assert_close(compiled(x), plain(x))
            torch.testing.assert_close(winner.hidden, plain.hidden)
        torch.testing.assert_close(winner(x), plain(x))  # and the kernels go on from there
    assert 1 == winner.kernel_stats()["kernel"]


def test_what_the_module_itself_can_not_differentiate_is_no_failure(tmp_path: Path) -> None:
    """Before: `gradients: RuntimeError: one of the variables … has been modified by an …`."""
    assert check(tmp_path, candidate(), RNN, "gradients").passed  # one call, not two
    never = RNN.replace(
        "self.h2o(self.hidden)", "self.h2o(self.hidden) + self.hidden.zero_().sum()"
    )
    refused = check(tmp_path, candidate(), never, "gradients")
    assert refused.skipped
    assert refused.reason.startswith("the module itself: ")


def test_before_its_release_check_a_winner_with_a_state_runs_the_plain_forward(
    tmp_path: Path,
) -> None:
    """A run writes the best so far with every limit: nothing has tried its state."""
    release = replace(release_of(STREAM, tmp_path), limits=LIMITS)
    file = imported(drop_in_source(STREAM, candidate(), release), tmp_path)
    plain, winner, (x,) = pair(file)
    with torch.no_grad():
        for _number in range(2):
            torch.testing.assert_close(winner(x), plain(x))
    (reason,) = winner.kernel_stats()["reasons"]
    assert "hidden, and whether the kernels keep it was not checked" in reason


def test_a_state_that_was_not_checked_makes_no_winner(tmp_path: Path) -> None:
    """A check without enough memory is skipped: then nothing says that the state is right."""
    release = release_of(RNN, tmp_path)
    assert not essential_failure(replace(release, passed=("module state",)))
    skipped = replace(release, skipped={"module state": "there is not enough memory"})
    assert "module state can't be checked" in essential_failure(skipped)
