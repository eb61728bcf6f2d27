"""Unusual but legal task files get a candidate that works, or one refusal with the true reason."""

from __future__ import annotations

import copy
import ctypes
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from odd_tasks import READ, REFUSED
from recipe_runner import (
    HEAD,
    Bench,
    candidate,
    code,
    observed,
    plan_work,
    repair_work,
    section,
    task,
    write_work,
)

from actors.agents import recipes
from actors.agents.recipes import answer
from actors.agents.recipes.codegen.compiler import compile_candidate
from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError
from actors.agents.recipes.frontend.undefined_names import undefined_names
from actors.agents.recipes.roles import heuristics
from actors.agents.recipes.schedule.knobs import default_knobs
from protocol.values import Outcome, Reference, source_key

BUILT = (
    "Model inherits its forward",
    "the forward is assigned",
    "numbers, flags and words as inputs",
    "a dict of tensors",
    "buffers and integers beside",
    "a residual and an activation in place",
)
NEVER = "Cannot at this task"


class NoKernels:
    """A library whose kernels do nothing: only the Python around them runs."""

    def __init__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        kernel = type("Kernel", (), {"__call__": lambda self, *_: 0})()
        setattr(self, name, kernel)
        return kernel


def module(text: str, name: str) -> types.ModuleType:
    """The text, imported as a module."""
    made = types.ModuleType(name)
    sys.modules[name] = made
    exec(compile(text, name, "exec"), made.__dict__)  # noqa: S102 - our own text
    return made


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Import candidates without a compiler."""
    import torch.utils.cpp_extension

    monkeypatch.setattr(torch.utils.cpp_extension, "load_inline", lambda **_: "")
    monkeypatch.setattr(ctypes, "CDLL", NoKernels)
    yield
    for name in ("odd_task", "odd_candidate"):
        sys.modules.pop(name, None)


def structure(value: Any) -> Any:
    """A result's nesting, with shapes and dtypes in place of numbers."""
    if isinstance(value, dict):
        return {key: structure(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(structure(item) for item in value)
    return tuple(value.shape), value.dtype


def pair(source: str, text: str) -> tuple[Any, Any, list[Any]]:
    """The task's module, the candidate's without its `plain_forward`, and inputs."""
    task_module = module(source, "odd_task")
    reference = task_module.Model(*task_module.get_init_inputs())
    made = module(text, "odd_candidate").ModelNew(*task_module.get_init_inputs())
    made.load_state_dict(reference.state_dict())

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the kernels were not used")

    made.plain_forward = refused
    return reference, made, task_module.get_inputs()


@pytest.mark.parametrize("name", READ)
def test_each_odd_module_imports_and_runs_to_its_end(
    bench: Bench, unbuilt: None, name: str
) -> None:
    """No name is undefined, no guard calls `plain_forward`, and results have the same nesting."""
    text = candidate(READ[name], {})
    reference, made, inputs = pair(READ[name], text)
    with bench.torch.no_grad():
        expected = reference(*copy.deepcopy(inputs))
        assert structure(expected) == structure(made(*copy.deepcopy(inputs)))
    assert not undefined_names(text) - undefined_names(READ[name])


@pytest.mark.parametrize("name", READ)
def test_each_odd_module_gets_a_candidate_for_a_card(name: str) -> None:
    """The CUDA writers cover what the C++ writers cover, and the candidate is valid Python."""
    text = candidate(READ[name], {}, "cuda")
    compile(text, "candidate", "exec")
    assert not undefined_names(text) - undefined_names(READ[name])


@pytest.mark.parametrize("name", BUILT)
def test_odd_modules_are_computed_correctly(bench: Bench, name: str) -> None:
    """Built with a compiler, the candidate gives the module's numbers."""
    reference, made, inputs = pair(READ[name], candidate(READ[name], {}))
    with bench.torch.no_grad():
        bench.torch.testing.assert_close(made(*inputs), reference(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_what_and_where_and_is_final(name: str) -> None:
    """It names the tensor or construct and the line of the task's file, and ends the task."""
    source, words = REFUSED[name]
    for reply in (answer(plan_work(source)), answer(write_work(source, "Be quick."))):
        for word in words:
            assert word in section(reply, NEVER)
        assert "```" not in reply
        assert "a fault of" not in reply


@pytest.mark.parametrize("name", ["a branch on data", "an assignment in place", "autocast"])
def test_a_failed_node_of_a_task_that_is_refused_is_the_plain_module(name: str) -> None:
    """A language model's broken candidate is repaired by the plain module, which always works."""
    node = observed("class ModelNew: pass", verdict=Outcome.WRONG)
    made = code(section(answer(repair_work(REFUSED[name][0], node)), "Candidate"))
    compile(made, "candidate", "exec")
    assert "ModelNew" in made


def test_a_bug_of_the_rules_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours ends one task with a line that names it, and does not end the process."""

    def broken(_: object) -> str:
        raise KeyError("k7")

    monkeypatch.setattr(recipes, "planner_reply", broken)
    reply = section(answer(plan_work(READ["a walrus"])), NEVER)
    assert "KeyError" in reply
    assert "fault of the rule book's own" in reply


@pytest.mark.parametrize(
    "source",
    [
        "",
        "x = (",
        "\0",
        "class Model: pass",
        "def Model(): pass",
        HEAD + "Model = 3",
        HEAD + "class Model(nn.Module): pass",
        "(" * 5000,
        HEAD + "class Model(nn.Module):\n  forward = 3",
    ],
)
def test_any_text_is_answered(source: str) -> None:
    """A file that is not a task is refused with a sentence, without a traceback."""
    reply = section(answer(plan_work(source)), NEVER)
    assert reply
    assert "a fault of" not in reply


def test_the_reference_s_types_override_the_source(bench: Bench) -> None:
    """The reference reports float64: the refusal says so, also if get_inputs does not show it."""
    source = task("pass", "return torch.tanh(x)", "make()") + "\ndef make():\n    return 1\n"
    reference = Reference(eager_us=1.0, inputs="float64[8, 8]", outputs="float64[8, 8]")
    reply = section(answer(plan_work(source, reference=reference)), NEVER)
    assert "input 0 (x) is float64[8, 8]" in reply


def test_read_shapes_are_compared_with_measured_ones() -> None:
    """A misread shape is a refusal, not a candidate that silently calls `plain_forward`."""
    with pytest.raises(UnsupportedSourceError, match=r"output 0 was read as float32\[16, 64\]"):
        compile_candidate(READ["a walrus"], "", "cpp", default_knobs("cpp"), "float32[16, 32]")


def test_other_arguments_call_the_plain_forward(bench: Bench, unbuilt: None) -> None:
    """Values that are written into the kernels are checked in every call."""
    source = READ["a keyword-only argument with a default"]
    _, made, (x,) = pair(source, candidate(source, {}))
    made(x)
    for other in ({"scale": 3.0}, {"flag": False}, {"mask": x}):
        with pytest.raises(AssertionError, match="not used"):
            made(x, **other)


def test_no_candidate_of_the_task_is_proposed_again() -> None:
    """A plan repeats neither a candidate that the coordinator lists nor another plan under way.  If
    the rules lead to nothing new, the node is given up."""
    source = task("pass", "return torch.tanh(x) * x", "torch.randn(8, 32)")
    node = observed(candidate(source, {}))
    tried: tuple[str, ...] = (source_key(node.source),)
    for _ in range(60):
        first = answer(plan_work(source, node, tried=tried))
        if not section(first, "Advice"):
            break
        advice = section(first, "Advice")
        other = section(answer(plan_work(source, node, tried=tried, planned=(advice,))), "Advice")
        assert other != advice
        made = code(section(answer(write_work(source, advice, node)), "Candidate"))
        assert source_key(made) not in tried
        tried = (*tried, source_key(made))
    assert section(first, "Cannot at this node")


def test_a_task_is_given_up_when_every_chain_of_changes_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While another node leads to a new candidate, one node is given up; after that, the task."""
    few = {
        key: heuristics.CPP_CHANGES[key]
        for key in heuristics.CPP_CHANGES
        if key[0] in ("maths", "store")
    }
    monkeypatch.setattr(heuristics, "CPP_CHANGES", few)
    source = task("pass", "return torch.tanh(x) / 3.1", "torch.randn(8, 32)")
    made = [candidate(source, {"maths": m, "store": s})
            for m in ("tight", "quick") for s in ("cached", "stream")]  # fmt: skip
    keys = tuple(source_key(text) for text in made)
    node = observed(made[0])
    assert section(answer(plan_work(source, node, tried=keys[:3])), "Cannot at this node")
    assert "every candidate" in section(answer(plan_work(source, node, tried=keys)), NEVER)


def test_a_repair_that_was_tried_is_not_made_again() -> None:
    """If even the plain module was tried, the node is given up."""
    source = READ["a walrus"]
    failed = observed(
        candidate(source, {}), verdict=Outcome.COMPILE_FAILED, log="command not found"
    )
    made = code(section(answer(repair_work(source, failed)), "Candidate"))
    reply = answer(repair_work(source, failed, tried=(source_key(made),)))
    assert section(reply, "Cannot at this node")
