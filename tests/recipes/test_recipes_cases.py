"""The rule book's candidates for tasks with cases, and for tasks that `adopt` wrote."""

from __future__ import annotations

from recipe_runner import Bench, candidate, code, section, task, write_work

from actors.agents.recipes import answer
from actors.agents.recipes.codegen.compiler import CaseText, compile_candidate
from actors.agents.recipes.schedule.knobs import default_knobs
from protocol.cases import CaseReference, TaskCase
from protocol.values import Reference, Task

# As `adopt` writes a residual block: parameters with their measured ranges, functions of torch.
BLOCK = task(
    "self.scale = nn.Parameter((torch.randn((12,)) * 0.1 + 1).clamp(0.7, 1.3))\n"
    "self.kernel = nn.Parameter((torch.randn((8, 12, 3, 3)) * 0.1).clamp(-0.3, 0.3))\n"
    "self.eval()",
    "group_norm = F.group_norm(x, 4, self.scale, None, 1e-05)\n"
    "conv2d = F.conv2d(F.silu(group_norm), self.kernel, None, [1, 1], [1, 1])\n"
    "return torch.tanh(conv2d) * 0.5 + 1.0",
    "torch.randn((2, 12, 8, 8))",
)
GATED = task(
    "self.up = nn.Parameter((torch.randn((64, 24)) * 0.1).clamp(-0.3, 0.3))",
    "linear = F.linear(x, self.up)\nreturn F.silu(linear) * torch.tanh(linear)",
    "torch.randn((4, 128, 24))",
)
HALF = task(
    "self.weight = nn.Parameter((torch.randn((64,)) * 0.02 + 1).to(torch.bfloat16))",
    "wide = x.to(torch.float32)\n"
    "normed = wide * torch.rsqrt(torch.mean(wide ** 2, [-1], True) + 1e-06)\n"
    "return self.weight * normed.to(torch.bfloat16)",
    "torch.randn((4, 9, 64))",
)


def cases_of(source: str, *shapes: str) -> tuple[CaseText, ...]:
    """Return the further cases of a task by their inputs."""
    return tuple(CaseText(source=source, inputs=shape) for shape in shapes)


def test_each_case_has_kernels_and_other_shapes_do_not(bench: Bench) -> None:
    """Every judged shape runs kernels that are right; another shape runs the task's forward."""
    more = cases_of(BLOCK, "float32[1, 12, 32, 64]", "float32[5, 12, 16, 32]")
    made = compile_candidate(
        BLOCK, "float32[2, 12, 8, 8]", "cpp", default_knobs("cpp"), more_cases=more
    ).source
    _, reference, new = bench.models(BLOCK, made)
    calls: list[int] = []
    plain = new.plain_forward
    new.plain_forward = lambda x: (calls.append(1), plain(x))[1]
    for shape in ((2, 12, 8, 8), (1, 12, 32, 64), (5, 12, 16, 32)):
        assert bench.error(reference, new, [bench.torch.randn(shape)]) < 3
    assert not calls
    assert bench.error(reference, new, [bench.torch.randn(3, 12, 8, 8)]) < 3
    assert calls


def test_a_case_of_a_few_numbers_beside_a_product_runs_the_task_s_forward(bench: Bench) -> None:
    """A launch costs what it saves there, and a case slower than 0.98 loses the whole task."""
    made = compile_candidate(
        GATED, "float32[4, 128, 24]", "cpp", default_knobs("cpp"),
        more_cases=cases_of(GATED, "float32[4, 1, 24]"),
    ).source  # fmt: skip
    _, _, new = bench.models(GATED, made)
    new.plain_forward = lambda x: x
    small, large = bench.torch.randn(4, 1, 24), bench.torch.randn(4, 128, 24)
    assert new(small) is small
    assert new(large) is not large


def test_what_follows_a_product_is_fused_where_parameters_have_ranges() -> None:
    """`.clamp()` and `.to()` keep a parameter's shape: the product's shape follows from it."""
    made = compile_candidate(BLOCK, "", "cpp", default_knobs("cpp"))
    assert made.program.left_to_torch == ("conv2d",)
    assert len(made.schedule.regions) == 2


def test_conversions_between_float_and_the_task_s_own_half_are_no_operations(bench: Bench) -> None:
    """A norm that computes in float inside of a bfloat16 model is one kernel, and as accurate."""
    made = candidate(HALF, {}, inputs="bfloat16[4, 9, 64]")
    assert ".to(" not in made.rpartition("def forward")[2]
    assert bench.worst(HALF, made, "bfloat16") < 3


def test_the_work_s_cases_reach_the_candidate() -> None:
    """A request that shows several measured cases is answered with kernels for all of them."""
    shapes = ((2, 12, 8, 8), (1, 12, 32, 64))
    cases = tuple(TaskCase(name=f"case-{n}", weight=0.5) for n in range(2))
    reference = Reference(
        eager_us=100.0,
        inputs="float32[2, 12, 8, 8]",
        cases=tuple(
            CaseReference(name=case.name, weight=0.5, eager_us=1.0, inputs=f"float32{list(shape)}")
            for case, shape in zip(cases, shapes, strict=True)
        ),
    )
    whole = Task(name="t", source=BLOCK, backend="cpp", cases=cases)
    reply = answer(write_work(BLOCK, "Fuse", reference=reference, task=whole))
    source = code(section(reply, "Candidate"))
    assert "fits(x, (1, 12, 32, 64))" in source
