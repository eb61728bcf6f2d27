"""The cards: their form, what they may teach, and that their code compiles and is right."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from card_runner import prepared_call, run_sample
from card_samples import SAMPLES
from triton_harness import FUNCTIONS

from actors.agents.cards.card import (
    MAX_CARD_BYTES,
    NOT_MEASURED,
    Card,
    CardError,
    load_cards,
    parse_card,
)
from actors.agents.cards.compile_check import (
    CPU_FLAGS,
    compile_problem,
    not_compiled,
    read_record,
)

CARDS = load_cards()
HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "prompts" / "cards"
# What the judge rejects, or labels: results kept across calls, other streams, less precision.
FORBIDDEN = re.compile(
    r"static (?!inline|__)|cudaStreamCreate|cudaGraph|cudaDeviceSynchronize|cudaMalloc|"
    r"thread_local|lru_cache|^\s*global \w|use_fast_math|ffast-math|__half|\.half\(|allow_tf32|"
    r'input_precision="tf32"|COMPUTE_32F_FAST',
    re.MULTILINE,
)
PROCESSOR = (
    Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
)


def runs_here(card: Card) -> bool:
    """Whether this processor has what a CPU card needs."""
    words = {"amx_tile": ("amx_tile", "amx_bf16"), "avx512f": ("avx512f",), "cpu": ()}
    return all(re.search(rf"\b{word}\b", PROCESSOR) for word in words[card.architecture])


def of_backend(backend: str) -> list[Card]:
    """The cards of one backend."""
    return [card for card in CARDS if card.backend == backend]


def name_of(card: Card) -> str:
    """A test's name."""
    return card.name


@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_a_card_is_short_measured_and_allowed(card: Card) -> None:
    """A card fits into its places of 1.5 KB, has a measured effect, shows nothing that the judge
    rejects."""
    text = (FOLDER / f"{card.name}.md").read_text(encoding="utf-8")

    assert len(text.encode()) <= MAX_CARD_BYTES * card.places
    assert NOT_MEASURED != card.effect
    assert [] == FORBIDDEN.findall(card.code)
    assert text.isascii()


def test_a_card_with_bulk_copies_has_the_fence_before_a_slot_is_filled_again() -> None:
    """Two LayerNorms of a model were wrong without it: their loads were overtaken by the copy."""
    copying = [card for card in of_backend("cuda") if "cp.async.bulk" in card.code]

    assert copying
    assert [] == [card.name for card in copying if "fence.proxy.async" not in card.text]


def test_every_card_has_a_sample_and_a_harness() -> None:
    """No card is without a test of its result."""
    names = {card.name for card in CARDS}
    harnesses = {path.stem for kind in ("cuda", "cpp") for path in (HERE / kind).iterdir()}

    assert names == set(SAMPLES)
    assert names == harnesses | set(FUNCTIONS)
    assert all(any(sample.is_timed for sample in samples) for samples in SAMPLES.values())


def test_every_card_was_compiled_as_it_is() -> None:
    """The code of every card is the code that compiled: `scripts/cards.py check --record`."""
    record = read_record()

    assert [] == [card.name for card in not_compiled(CARDS, record)]
    assert set(record) == {card.name for card in CARDS}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace("backend: cpp", "backend: cuda"), "fenced as cpp"),
        (lambda text: text.replace("operations: ", "operations: alchemy, "), "alchemy"),
        (lambda text: text.replace("architecture: avx512f", "architecture: sm_90"), "sm_90"),
        (lambda text: text.replace("source: ", "sauce: "), "'sauce: "),
        (lambda text: text.replace("---\n", "", 1), "header"),
        (lambda text: text + "x" * MAX_CARD_BYTES, "bytes, more than 1536"),
        (lambda text: text + "\n```cpp\nint i;\n```\n", "2 fenced blocks"),
        (lambda text: re.sub(r"checked: .*", "checked: yesterday", text), "not a date"),
        (lambda text: text.replace("checked: ", "row: many\nchecked: "), "row: many"),
        (lambda text: text.replace("checked: ", "places: 4\nchecked: "), "places: 4"),
        (lambda text: text.replace("checked: ", "places: x\nchecked: "), "places: x"),
        (lambda text: re.sub(r"effect: .*\n", "", text), "lacks effect"),
    ],
)
def test_a_malformed_card_is_named_with_its_problem(change: object, problem: str) -> None:
    """A card that is not as the README says can't be loaded; the message names it."""
    text = (FOLDER / "cpp-stream-stores.md").read_text(encoding="utf-8")
    assert callable(change)

    with pytest.raises(CardError, match=problem) as caught:
        parse_card("cpp-stream-stores", change(text))
    assert "cpp-stream-stores" in str(caught.value)


def test_code_that_does_not_compile_is_found() -> None:
    """A changed card counts as not compiled, and its compiler's words are returned."""
    card = parse_card(
        "cpp-stream-stores",
        (FOLDER / "cpp-stream-stores.md").read_text(encoding="utf-8").replace("_mm_sfence", "nope"),
    )

    assert [card] == not_compiled([card], read_record())
    assert "nope" in compile_problem(card)


def test_a_name_of_torchs_headers_is_found() -> None:
    """A card that defines `at` compiles alone, and not in a candidate behind torch's headers."""
    text = (FOLDER / "cpp-stream-stores.md").read_text(encoding="utf-8")
    clashing = text.replace("```cpp\n", "```cpp\nstatic int at() { return 1; }\n", 1)
    assert "at" in compile_problem(parse_card("cpp-stream-stores", clashing))


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
@pytest.mark.parametrize("card", of_backend("cpp"), ids=name_of)
def test_a_cpu_card_is_right(card: Card, tmp_path: Path) -> None:
    """A CPU card compiles with its harness; where the processor has what it needs, it is right."""
    assert card.architecture in CPU_FLAGS
    if not runs_here(card):
        assert compile_problem(card) == ""
        return
    call = prepared_call(card, tmp_path)
    small = [sample for sample in SAMPLES[card.name] if not sample.is_timed]
    for sample in small:
        result = run_sample(card, call, sample, "cpu", timed=False)
        assert result.is_right, result


@pytest.mark.parametrize("card", of_backend("triton"), ids=name_of)
def test_a_triton_card_is_python_with_its_function(card: Card) -> None:
    """A Triton card parses, and defines the function that its test calls."""
    assert compile_problem(card) == ""
    assert f"def {FUNCTIONS[card.name]}(" in card.code


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("card", of_backend("cuda"), ids=name_of)
def test_a_cuda_card_compiles(card: Card) -> None:
    """The code of a CUDA card compiles for its architecture."""
    problem = compile_problem(card)
    if "cublas" in problem and "No such file" in problem:
        pytest.skip("no cuBLAS headers")
    assert problem == ""


@pytest.mark.gpu
@pytest.mark.parametrize("card", of_backend("cuda") + of_backend("triton"), ids=name_of)
def test_a_cuda_or_triton_card_is_right(card: Card, tmp_path: Path) -> None:
    """On a card, the results of its small samples are right."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    call = prepared_call(card, tmp_path)
    for sample in SAMPLES[card.name]:
        result = run_sample(card, call, sample, "cuda", timed=False)
        torch.cuda.synchronize()
        assert result.is_right, result
