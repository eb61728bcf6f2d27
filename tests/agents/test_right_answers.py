"""Right answers that look like slips: they are candidates, and nothing is asked."""

from __future__ import annotations

import pytest
from agent_fakes import CANDIDATE, TASK_SOURCE

from actors.agents.replies.candidates import read_candidate
from actors.agents.replies.places import ShownLines
from actors.agents.replies.replies import ReplyProblem, fenced, parse_reply
from protocol.values import Candidate, Plan

FREE = Plan(advice="", scaffold="")
MODULE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def scaled(self, x):
        return x * self.scale

    def forward(self, x):
        return self.scaled(x)
"""
TASK = f"import torch\nimport torch.nn as nn\n{MODULE}"
EXTENSION = 'SOURCE = r"""\n{code}\n"""\n'
FORWARD = "torch::Tensor forward(torch::Tensor x) {\n  return x;\n}"
SCALED = "torch::Tensor scaled(torch::Tensor x) {\n  return x;\n}"
WARP_SUM = "__device__ float warp_sum(float v) {\n  return v;\n}"
KERNEL = "@triton.jit\ndef {name}(x, BLOCK: tl.constexpr):\n    pass\n"
TRITON = f"import triton\nimport triton.language as tl\n\n{KERNEL.format(name='first')}\n{TASK}"
FUNCTION = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0
"""
BACKWARD = "    @staticmethod\n    def backward(ctx, grad):\n        return grad * 2.0\n"
PROPERTY = "    @property\n    def size(self):\n        return 1\n"
SETTER = "    @size.setter\n    def size(self, value):\n        self.scale = value\n"
OVERLOADS = (
    "    @overload\n    def f(self, x: int): ...\n\n    @overload\n    def f(self, x: str): ...\n"
)


def edited(source: str, title: str, new: str) -> Candidate | ReplyProblem:
    text = f"## Edits\n\n### {title}\n{fenced(new)}\n"
    return read_candidate(parse_reply(text), FREE, ShownLines(source))


def whole(source: str, shown: str) -> Candidate | ReplyProblem:
    reply = parse_reply(f"## Candidate\n\n{fenced(source)}\n")
    return read_candidate(reply, FREE, ShownLines(shown))


def namespaced(name: str) -> str:
    return f"namespace {name} {{\n{WARP_SUM}\n}}"


def test_compiled_code_may_have_the_name_of_a_method() -> None:
    """`forward` is a common name of extensions; the class of the task is renamed in any case."""
    found = edited(TASK, "after line 2", EXTENSION.format(code=FORWARD))
    assert isinstance(found, Candidate), found
    source = f'        self.scaled = load("""\n{SCALED}\n""").scaled'
    found = edited(TASK, "lines 8-10", source)
    assert isinstance(found, Candidate), found


@pytest.mark.parametrize(
    ("source", "title", "new"),
    [
        (TRITON, "after line 6", "\n" + KERNEL.format(name="second")),
        (f"{TASK}{FUNCTION}", "after function Scale.forward", f"\n{BACKWARD}"),
        (f"{TASK}\n{PROPERTY}", "after function Model.size", f"\n{SETTER}"),
        (f"from typing import overload\n{TASK}", "after function Model.forward", f"\n{OVERLOADS}"),
    ],
)
def test_decorated_functions_are_known_by_their_names(source: str, title: str, new: str) -> None:
    """Two kernels under the same decorator are two definitions."""
    found = edited(source, title, new)
    assert isinstance(found, Candidate), found


@pytest.mark.parametrize(
    ("source", "title", "new"),
    [
        (TRITON, "after line 6", "\n" + KERNEL.format(name="first")),
        (TASK, "after function Model.forward", "\n    def scaled(self, x):\n        return x\n"),
    ],
)
def test_the_same_python_function_twice_is_asked_about(source: str, title: str, new: str) -> None:
    """Python takes the last one: where that is the old one, the edit does nothing."""
    found = edited(source, title, new)
    assert isinstance(found, ReplyProblem)
    assert "defined twice" in found.reason


def test_each_string_may_have_the_same_helper() -> None:
    """Two extensions are compiled apart, and two namespaces have names of their own."""
    source = EXTENSION.format(code=WARP_SUM) + TASK
    other = EXTENSION.format(code=WARP_SUM).replace("SOURCE", "OTHER")
    assert isinstance(edited(source, "before line 1", other), Candidate)
    twice = edited(source, "after line 4", f"\n{WARP_SUM}")
    assert isinstance(twice, ReplyProblem)
    assert "defined twice" in twice.reason
    source = EXTENSION.format(code=namespaced("one")) + TASK
    assert isinstance(edited(source, "after line 6", f"\n{namespaced('two')}"), Candidate)


@pytest.mark.parametrize(
    "comment",
    [
        *("// same as above", "// as before", "// unchanged", "// ... then wait"),
        *("// Original PyTorch code", "// remaining elements: same code"),
        "// Existing weights, same layout as the original code",
    ],
)
def test_comments_of_a_whole_file_are_no_sketch(comment: str) -> None:
    """Beside the code that they speak of"""
    store = next(line for line in CANDIDATE.split("\n") if "y[i] =" in line)
    source = CANDIDATE.replace(store, f"        {comment}\n{store}")
    assert whole(source, TASK_SOURCE) == Candidate(source=source)
    python = f"# {comment.removeprefix('// ')}\n{CANDIDATE}"
    assert whole(python, TASK_SOURCE) == Candidate(source=python)


def test_a_comment_in_place_of_a_block_is_asked_about() -> None:
    """Not where the shown source has the same comment."""
    store = next(line for line in CANDIDATE.split("\n") if "y[i] =" in line)
    sketch = CANDIDATE.replace(store, "        // as before")
    assert isinstance(whole(sketch, TASK_SOURCE), ReplyProblem)
    assert isinstance(whole(sketch, sketch), Candidate)


def test_a_function_that_is_called_and_left_out_is_asked_about() -> None:
    """A comment stands where the shown source has the function; one that nothing calls may go."""
    method = "    def scaled(self, x):\n        return x * self.scale\n"
    shown = TASK.replace("Model(", "ModelNew(")
    sketch = shown.replace(method, "    # rest unchanged\n")
    found = whole(sketch, shown)
    assert isinstance(found, ReplyProblem)
    assert "leaves lines out ('# rest unchanged')" in found.reason
    assert isinstance(whole(sketch.replace("self.scaled(x)", "x"), shown), Candidate)
