"""The checks of the operator, under compilers and on a card."""

# mypy: ignore-errors
from __future__ import annotations

import io
import shutil

import torch

from .check_inputs import (
    differentiate,
    exact_gradients,
    gradients,
    misaligned,
    operator_of,
    permuted,
    perturbed,
    require_cuda,
    resized,
    sliced,
)
from .comparison import NotCheckableError, Subject, call, copies, require_close, require_right
from .judged_calls import change, tensors_of

CHECKS = {}  # name -> function of a Subject; returns a note, or None


def check(function):
    CHECKS[function.__name__.removeprefix("check_").replace("_", " ")] = function
    return function


# --- the operator ---


@check
def check_operator(subject):
    """The operator as a function: two sets of parameters in turn, one changed in place."""
    forward = operator_of(subject)
    plains = [subject.plain(), perturbed(subject.plain())]
    before = subject.part.stats()["kernel"]
    for _ in range(2):
        for plain in (*plains, *plains):
            inputs = subject.inputs()
            got = forward(*subject.tensors(plain, inputs))
            require_right(got, plain, inputs)
        perturbed(plains[1])
        perturbed(plains[0])
    subject.require_kernels(subject.part.stats()["kernel"] > before, subject.winner(), "operator")


@check
def check_opcheck(subject):
    """torch.library.opcheck: schema, autograd registration, fake tensors, AOT dispatch."""
    forward = operator_of(subject)
    plain = subject.plain()
    for how in (lambda t: t, permuted, sliced, misaligned):
        tensors = subject.tensors(plain, change(subject.inputs(), how))
        torch.library.opcheck(forward, tuple(tensors))
    torch.library.opcheck(forward, tuple(differentiable_tensors(subject, plain)))


@check
def check_operator_gradients(subject):
    """The operator's derivative is that of the original, also when it is compiled."""
    forward = operator_of(subject)
    plain = subject.plain()

    def as_module(*args):
        return forward(*args)

    expected = gradients(plain, subject.inputs())
    if not expected:
        raise NotCheckableError("no gradient flows through the module")
    truth = exact_gradients(plain, subject.inputs())
    state = [name for name, each in plain.named_parameters() if each.requires_grad]
    for function in (as_module, torch.compile(as_module, fullgraph=True, backend="aot_eager")):
        tensors = differentiable_tensors(subject, plain)
        inputs = tensors[: len(tensors) - len(subject.part.STATE_NAMES)]
        outputs = [t for t in tensors_of(function(*tensors)) if t.is_floating_point()]
        wanted = [t for t in inputs if t.requires_grad]
        given = dict(zip(subject.part.STATE_NAMES, tensors[len(inputs) :]))
        wanted += [given[name] for name in state if name in given]
        require_close(differentiate(outputs, wanted), expected, truth)


def differentiable_tensors(subject, plain):
    """Return the operator's arguments; those require a gradient that do in the original.

    Inputs, and the module's parameters that are trained: a buffer such as a running mean has no
    derivative.
    """
    trained = {name for name, each in plain.named_parameters() if each.requires_grad}
    tensors = [t.clone() for t in subject.tensors(plain, subject.inputs())]
    count = len(tensors) - len(subject.part.STATE_NAMES)
    names = [None] * count + list(subject.part.STATE_NAMES)
    for name, tensor in zip(names, tensors):
        tensor.requires_grad_(tensor.is_floating_point() and (name is None or name in trained))
    return tensors


# --- compilers ---


@check
def check_compile(subject):
    """torch.compile(fullgraph=True): no graph break; other sizes cost one recompile at most.

    In evaluation mode where there are buffers, for in training they may change: the original runs.
    """
    plain = subject.plain()
    winner = subject.winner(plain)
    runs_kernels = subject.runs_kernels("compile")
    if plain.training and any(True for _ in plain.buffers()):
        plain.eval()
        winner.eval()
        runs_kernels = runs_kernels and subject.runs_kernels("other mode")
    backend = "inductor" if shutil.which("g++") or subject.device == "cuda" else "aot_eager"
    graphs = []

    def counting(graph, examples):
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, examples)

    compiled = torch.compile(winner, fullgraph=True, backend=counting)
    if not is_right_compiled(subject, compiled, plain, subject.inputs()):
        raise NotCheckableError("the original can't be compiled in one graph")
    if runs_kernels:
        subject.require_kernels(winner.kernel_stats()["kernel"], winner, "compile")
    first = len(graphs)
    for size in (5, 6, 7):
        other = change(subject.inputs(), lambda t, size=size: resized(t, size))
        try:
            call(plain, other)
        except Exception:
            return f"backend {backend}; the original takes no other sizes"
        if not is_right_compiled(subject, compiled, plain, other):
            return f"backend {backend}; the original can't be compiled for other sizes"
    assert len(graphs) - first <= 2, f"{len(graphs) - first} graphs for three other sizes"
    return f"backend {backend}"


def is_right_compiled(subject, compiled, plain, inputs):
    """Return False where the original itself can't be compiled in one graph; raise where wrong."""
    try:
        subject.expect(compiled, plain, inputs)
    except Exception:
        torch._dynamo.reset()
        try:
            call(torch.compile(plain, fullgraph=True, backend="eager"), inputs)
        except Exception:
            return False
        raise
    return True


@check
def check_export(subject):
    """torch.export, saved, loaded and run: the values of the original."""
    plain = subject.plain()
    winner = subject.winner(plain)
    inputs = subject.inputs()
    try:
        program, loaded = exported(winner, inputs)
    except Exception:
        try:
            exported(plain, inputs)
        except Exception as error:
            raise NotCheckableError(f"the original can't be exported: {error}") from error
        raise
    require_right(call(loaded, inputs), plain, inputs)
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    held = any(subject.part.NAMESPACE in name for name in names)
    return "the graph holds the operator" if held else "the graph holds plain operations"


def exported(module, inputs):
    """Return a module's exported program, and the module that is loaded from its file."""
    program = torch.export.export(module, tuple(copies(inputs)))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return program, torch.export.load(file).module()


# --- the card ---


@check
def check_CUDA_graph(subject):
    """Captured once, replayed with other inputs."""
    require_cuda(subject)
    plain = subject.plain()
    winner = subject.winner(plain)
    held = subject.inputs()
    side = torch.cuda.Stream()
    with torch.no_grad():
        call(winner, held)
        with torch.cuda.stream(side):
            for _ in range(3):
                winner(*held)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = winner(*held)
        for seed in (1, 2):
            fresh = subject.inputs(seed)
            for old, new in zip(tensors_of(held), tensors_of(fresh)):
                old.copy_(new)
            graph.replay()
            torch.cuda.synchronize()
            require_right(outputs, plain, fresh)


@check
def check_side_stream(subject):
    """On another stream, with inputs that are still being written on it."""
    require_cuda(subject)
    plain = subject.plain()
    winner = subject.winner(plain)
    held = change(subject.inputs(), torch.zeros_like)
    fresh = subject.inputs()
    call(winner, held)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        for old, new in zip(tensors_of(held), tensors_of(fresh)):
            old.copy_(new)
        outputs = winner(*held)
    stream.synchronize()
    require_right(outputs, plain, fresh)


@check
def check_second_device(subject):
    """On another card than the current one."""
    require_cuda(subject)
    if torch.cuda.device_count() < 2:
        raise NotCheckableError("there is one CUDA device")
    other = Subject(subject.part, "cuda:1")
    plain = other.plain()
    require_right(call(other.winner(plain), other.inputs()), plain, other.inputs())
