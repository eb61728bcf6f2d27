"""The checks of modules: each uses a winner in one way, and raises where it is wrong."""

# mypy: ignore-errors
from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import torch

from .check_inputs import (
    differentiable,
    differentiate,
    exact_gradients,
    gradients,
    misaligned,
    permuted,
    perturbed,
    resized,
    seconds_of,
    sliced,
)
from .comparison import NotCheckableError, call, copies, exact, require_close
from .judged_calls import change

CHECKS = {}  # name -> function of a Subject; returns a note, or None


def check(function):
    CHECKS[function.__name__.removeprefix("check_").replace("_", " ")] = function
    return function


# --- values ---


@check
def check_values(subject):
    """Fresh inputs: the error against float64 is that of the original, times a factor."""
    plain = subject.plain()
    winner = subject.winner(plain)
    for seed in range(3):
        subject.expect(winner, plain, subject.inputs(seed), kernels=True)


@check
def check_odd_shapes(subject):
    """Other sizes, none and one of a dimension: as the original, kernels or not."""
    plain = subject.plain()
    winner = subject.winner(plain)
    inputs = subject.inputs()
    for size in (0, 1, 3):
        subject.expect(winner, plain, change(inputs, lambda t, size=size: resized(t, size)))


@check
def check_strides(subject):
    """Permuted, sliced and misaligned inputs: as the original."""
    plain = subject.plain()
    winner = subject.winner(plain)
    for how in (permuted, sliced, misaligned):
        subject.expect(winner, plain, change(subject.inputs(), how))


@check
def check_dtypes(subject):
    """Each floating dtype of the whole module: as the original."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        plain = subject.plain().to(dtype)
        winner = subject.winner().to(dtype)
        inputs = change(
            subject.inputs(), lambda t, to=dtype: t.to(to) if t.is_floating_point() else t
        )
        try:
            subject.expect(winner, plain, inputs)
        except NotImplementedError as error:
            raise NotCheckableError(f"{dtype}: {error}") from error


@check
def check_autocast(subject):
    """Under autocast the dtypes and values are those of the original."""
    plain = subject.plain()
    winner = subject.winner(plain)
    with torch.autocast(subject.device, torch.bfloat16):
        require_close(call(winner, subject.inputs()), call(plain, subject.inputs()))


# --- the module ---


@check
def check_state(subject):
    """state_dict, deepcopy and pickle: the keys and the values of the original."""
    plain = subject.plain()
    winner = subject.winner(plain)
    assert list(winner.state_dict()) == list(plain.state_dict()), "other keys in the state dict"
    call(winner, subject.inputs())
    with torch.no_grad():
        for parameter in plain.parameters():
            if parameter.is_floating_point():
                parameter.mul_(0.75)
    winner.load_state_dict(plain.state_dict())
    subject.expect(winner, plain, subject.inputs(), kernels=True)
    for tensor in (*plain.parameters(), *winner.parameters()):  # no version counter tells of it
        if tensor.is_floating_point():
            tensor.data.mul_(0.8)
    for made in (winner, copy.deepcopy(winner), pickle.loads(pickle.dumps(winner))):
        subject.expect(made, plain, subject.inputs(), kernels=True)


@check
def check_second_instance(subject):
    """Two modules with other parameters, in turn."""
    plains = [subject.plain(), perturbed(subject.plain())]
    winners = [subject.winner(plain) for plain in plains]
    for seed in range(2):
        for winner, plain in zip(winners, plains):
            subject.expect(winner, plain, subject.inputs(seed), kernels=True)


@check
def check_other_mode(subject):
    """In the other mode than after construction, and back: the values of the original."""
    plain = subject.plain()
    winner = subject.winner(plain)
    mode = not plain.training
    for number, each in enumerate((mode, not mode, mode)):
        plain.train(each)
        winner.train(each)
        subject.expect(winner, plain, subject.inputs(number))


@check
def check_gradients(subject):
    """Gradients are the original's, also where two forwards run before the first backward."""
    plain = subject.plain()
    winner = subject.winner(plain)
    if not gradients(plain, subject.inputs()):
        raise NotCheckableError("no gradient flows through the module")
    judged = subject.part.JUDGED.get("gradients")  # the kernels run for these inputs alone
    for numbers in (None, judged) if judged is not None else (None,):
        calls = [differentiable(winner, subject.inputs(seed), numbers) for seed in range(2)]
        try:
            before = [differentiable(plain, subject.inputs(seed), numbers) for seed in range(2)]
            expected = [differentiate(*each) for each in before]
        except RuntimeError as error:  # one that keeps a graph from call to call, for example
            raise NotCheckableError(f"the original itself: {error}") from error
        truths = [exact_gradients(plain, subject.inputs(seed), numbers) for seed in range(2)]
        for one, other, truth in zip(calls, expected, truths):
            require_close(differentiate(*one), other, truth)
    if judged is not None:
        subject.require_kernels(winner.kernel_stats()["kernel"], winner)


@check
def check_threads(subject):
    """Two threads call one module at the same time."""
    plain = subject.plain()
    winner = subject.winner(plain)
    inputs = [subject.inputs(seed) for seed in range(2)]
    expected = [(call(plain, each), exact(plain, each)) for each in inputs]
    wrong = []

    def work(number):
        try:
            with torch.no_grad():
                for _ in range(20):
                    require_close(winner(*copies(inputs[number])), *expected[number])
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


# --- the installation ---


@check
def check_no_compiler(subject):
    """A fresh process without a compiler and without a cache: the right values, no error."""
    program = (
        "import sys, warnings, torch, importlib\n"
        "warnings.simplefilter('ignore')\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "part = importlib.import_module(sys.argv[2])\n"
        "battery = importlib.import_module(sys.argv[3] + '.comparison')\n"
        "subject = battery.Subject(part, sys.argv[4])\n"
        "plain = subject.plain()\n"
        "winner = subject.winner(plain)\n"
        "subject.expect(winner, plain, subject.inputs())\n"
        "print('the kernels run' if winner.kernel_stats()['kernel'] else 'the original runs')\n"
    )
    package = __package__
    root = str(Path(sys.modules[package].__file__).resolve().parents[1])
    with tempfile.TemporaryDirectory() as empty:
        environment = {
            **{key: os.environ[key] for key in ("LD_LIBRARY_PATH", "HOME") if key in os.environ},
            **{"PATH": empty, "STARK_KERNEL_CACHE": f"{empty}/cache", "CUDA_HOME": empty},
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        done = subprocess.run(
            [
                *(sys.executable, "-B", "-c", program),
                *(root, subject.part.__name__, package, subject.device),
            ],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]
    return done.stdout.strip().splitlines()[-1]


@check
def check_call_overhead(subject):
    """Microseconds of a call; nothing is judged."""
    if subject.device == "cuda":
        torch.cuda.synchronize()
    plain = subject.plain()
    winner = subject.winner(plain)
    inputs = subject.inputs()
    with torch.no_grad():
        times = [seconds_of(lambda module=module: module(*inputs)) for module in (plain, winner)]
        if subject.part.forward is not None:
            tensors = subject.tensors(plain, inputs)
            times.append(seconds_of(lambda: subject.part.forward(*tensors)))
    names = ("original", "ModelNew", "operator")
    figures = ", ".join(f"{name} {time * 1e6:.1f} µs" for name, time in zip(names, times))
    return f"a short look, not the speed-up: {figures}"
