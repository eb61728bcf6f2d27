"""The second stage: tasks of the modules that are worth it, each proven before it is offered."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import shutil
from collections.abc import Callable, Iterable, Sequence

import msgspec
import torch

from actors.adopt.call_layouts import CallKind, describe_call, tensors_of, unsupported
from actors.adopt.call_recorder import KindOfCalls, ModuleCalls, recorded_calls
from actors.adopt.captures import (
    FOLDER,
    CaptureSet,
    CaptureWriter,
    capturing,
    load_capture,
)
from actors.adopt.cases_file import cases_text
from actors.adopt.errors import AdoptError, first_line
from actors.adopt.look import Look, opened_model, steps_of
from actors.adopt.model_file import device_of, is_out_of_memory
from actors.adopt.module_graph import module_graph
from actors.adopt.operation_text import UntranslatableError
from actors.adopt.site_groups import SiteGroup, chosen_paths
from actors.adopt.stage_folder import StageFolder
from actors.adopt.task_proof import Proof, bound_task, call_us, combined, compare, load_task
from actors.adopt.task_text import TaskText, task_text
from protocol.layouts import Layout

LATER_FILES = ("fit.json", "check.json", "report.md")
MOST_ROUNDS = 4  # from a module that can't be taken to its parts, and theirs
RECORDED_KINDS = 4  # layouts of a module whose calls are recorded
ROUNDS = 3  # of all batches, to learn how long calls take
TRIES = 3  # of the comparison of times
LEAST_KIND = 0.2  # the part of a module's time that its most costly layout must have


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    top: int = 6
    min_share: float = 0.03
    patterns: tuple[str, ...] = ()
    cap: int = 2 << 30
    max_gap: float = 0.2


class TakenTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task and its place in the model."""

    name: str
    class_name: str
    file: str  # below the stage folder
    sha256: str  # of the task's source
    sites: tuple[str, ...]
    kind: CallKind  # the calls that the task stands for
    output: Layout
    inputs: tuple[int, ...]  # see TaskText
    state: dict[str, str]
    outputs: tuple[int, ...]
    share: float  # of the device time: the module's calls of this kind
    free_share: float  # of it, outside of libraries
    calls: float  # of this kind, a step, all sites
    weights_sha256: str  # of the first site's parameters and buffers
    proof: Proof


class NotTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A module of which no task was made."""

    name: str
    sites: tuple[str, ...]
    reason: str


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """take.json."""

    tasks: list[TakenTask]
    not_taken: list[NotTaken]
    captured_bytes: int
    is_cap_reached: bool


def take(folder: StageFolder, options: Options, say: Callable[[str], None]) -> Take:
    """Write the tasks, their cases and take.json."""
    file, record = opened_model(folder)
    found = folder.read("look.json", Look, "adopt.py look")
    model = file.build()
    batches = file.batches(record.batches)
    folder.remove("take.json", *LATER_FILES)
    for name in ("tasks", FOLDER):
        shutil.rmtree(folder.path / name, ignore_errors=True)
    run = steps_of(file, model, batches)
    run()
    stage = _TakeStage(folder, options, model, found, run, len(batches), device_of(model, batches))
    result = stage.run(say)
    folder.write("take.json", result)
    return result


class _TakeStage:
    """One run of the stage."""

    def __init__(
        self,
        folder: StageFolder,
        options: Options,
        model: torch.nn.Module,
        look: Look,
        run: Callable[[], None],
        steps: int,
        device: torch.device,
    ) -> None:
        self._folder = folder
        self._options = options
        self._model = model
        self._look = look
        self._run = run
        self._steps = steps
        self._device = device
        self._writer = CaptureWriter(folder, options.cap)
        self._tasks: list[TakenTask] = []
        self._not_taken: list[NotTaken] = []

    def run(self, say: Callable[[str], None]) -> Take:
        """Take groups, and the parts of those that can't be taken."""
        groups = self._asked_for() if self._options.patterns else self._worth_it()
        for _ in range(MOST_ROUNDS):
            refused = self._round(groups[: self._options.top - len(self._tasks)], say)
            groups = [] if self._options.patterns else self._parts(refused)
            if not groups or len(self._tasks) >= self._options.top:
                break
        return Take(
            tasks=sorted(self._tasks, key=lambda task: -task.free_share),
            not_taken=self._not_taken,
            captured_bytes=self._writer.bytes,
            is_cap_reached=self._writer.is_full,
        )

    def _asked_for(self) -> list[SiteGroup]:
        """Return the groups of the modules that --at names."""
        found = []
        for group in self._look.groups:
            sites = tuple(site for site in group.sites if self._is_asked_for(site))
            if sites:
                found.append(msgspec.structs.replace(group, sites=sites))
        if not found:
            raise AdoptError(
                f"--at {self._options.patterns[0]} matches no module that the model calls;"
                " look.json has their paths"
            )
        return found

    def _is_asked_for(self, site: str) -> bool:
        return any(fnmatch.fnmatchcase(site, pattern) for pattern in self._options.patterns)

    def _worth_it(self) -> list[SiteGroup]:
        return self._ordered(group for group in self._look.groups if group.is_chosen)

    def _ordered(self, groups: Iterable[SiteGroup]) -> list[SiteGroup]:
        """Return the groups with enough to win, the most promising first; note the others."""
        least = self._options.min_share
        enough = []
        for group in groups:
            if group.share < least:
                self._refuse(group, f"its share is {group.share:.1%}, less than {least:.1%}")
            elif group.free_share < least / 3:
                self._refuse(
                    group, f"only {group.free_share:.1%} of a step is outside of libraries"
                )
            else:
                enough.append(group)
        return sorted(enough, key=lambda group: -group.value)

    def _parts(self, refused: Sequence[SiteGroup]) -> list[SiteGroup]:
        """Return the groups worth a task inside of those that could not be taken."""
        paths = {
            path
            for group in refused
            for site in group.sites
            for path in chosen_paths(self._model, site, self._look.groups)
        }
        return self._ordered(g for g in self._look.groups if not paths.isdisjoint(g.sites))

    def _refuse(self, group: SiteGroup, reason: str) -> None:
        self._not_taken.append(NotTaken(name=group.name, sites=group.sites, reason=reason))

    def _round(self, groups: Sequence[SiteGroup], say: Callable[[str], None]) -> list[SiteGroup]:
        """Record the groups' calls and make their tasks; return the groups that are refused."""
        with recorded_calls(
            self._model, {group.name: group.sites for group in groups}, self._device
        ) as calls:
            for _ in range(ROUNDS):
                self._run()
        wanted = {
            group.name: (group.sites, [each.kind for each in _costly(calls[group.name])])
            for group in groups
        }
        with capturing(self._model, wanted, self._writer) as sets:
            self._run()
        refused = []
        for group in groups:
            try:
                task = self._task(group, calls[group.name], sets[group.name])
            except UntranslatableError as error:
                self._refuse(group, str(error))
                refused.append(group)
                say(f"not taken: {group.name} ({group.class_name} ×{len(group.sites)}): {error}")
                continue
            self._tasks.append(task)
            say(taken_line(task))
        return refused

    def _task(self, group: SiteGroup, calls: ModuleCalls, sets: Sequence[CaptureSet]) -> TakenTask:
        """Make and prove one task; raise UntranslatableError with the reason."""
        most = _most_costly(calls)
        captures = [each for each in sets if each.kind == most.kind]
        self._check_kind(most, captures)
        site, sites, text = self._text(group, most.kind, captures)
        names = load_task(text.source, group.name)
        proof = self._prove(names, text, captures, sites)
        part = most.us / (calls.us or 1.0)
        name = f"tasks/{group.name}/{group.name}.py"
        self._folder.write_text(name, text.source)
        cases = cases_text(group.name, calls, most, self._steps * ROUNDS)
        self._folder.write_text(f"tasks/{group.name}/cases.toml", cases)
        return TakenTask(
            name=group.name,
            class_name=group.class_name,
            file=name,
            sha256=hashlib.sha256(text.source.encode()).hexdigest(),
            sites=sites,
            kind=most.kind,
            output=captures[0].output,
            inputs=text.inputs,
            state=text.state,
            outputs=text.outputs,
            share=group.share * part * len(sites) / len(group.sites),
            free_share=group.free_share * part * len(sites) / len(group.sites),
            calls=most.calls / (self._steps * ROUNDS),
            weights_sha256=weights_hash(self._model.get_submodule(site)),
            proof=proof,
        )

    def _check_kind(self, most: KindOfCalls, captures: Sequence[CaptureSet]) -> None:
        """Raise UntranslatableError where calls of this kind can't become a task."""
        kind = most.kind
        if unsupported(kind.layout):
            raise UntranslatableError(f"it is given a {unsupported(kind.layout)}")
        if kind.gradients:
            raise UntranslatableError("gradients are wanted (a training step)")
        if kind.autocast:
            raise UntranslatableError("autocast is on when it is called")
        if not captures:
            full = "the cap of recorded bytes is reached (--cap)" if self._writer.is_full else ""
            raise UntranslatableError(full or "no call of its most costly layout was recorded")
        for capture in captures:
            if unsupported(capture.output):
                raise UntranslatableError(f"it returns a {unsupported(capture.output)}")
            if capture.effect:
                raise UntranslatableError(capture.effect)

    def _text(
        self, group: SiteGroup, kind: CallKind, captures: Sequence[CaptureSet]
    ) -> tuple[str, tuple[str, ...], TaskText]:
        """Return the task's text, and the sites that compute the same."""
        call = load_capture(self._folder.path, captures[0], self._device)
        tensors = list(tensors_of((call["args"], call["kwargs"])))
        about = (
            f"{group.class_name}, ×{len(group.sites)} in the model, called with"
            f" {describe_call(kind)}.\n\n"
            "Shapes, dtypes and ranges are measured, values are drawn.\n"
        )
        texts: dict[str, TaskText] = {}
        for path in (captures[0].site, *group.sites):
            module = self._model.get_submodule(path)
            if any(part._forward_hooks or part._forward_pre_hooks for part in module.modules()):
                raise UntranslatableError("it has hooks, which a kernel would skip")
            if path not in texts:
                graph = module_graph(module, call["args"], call["kwargs"])
                texts[path] = task_text(graph, module, tensors, about)
        first = texts[captures[0].site]
        same = [
            path
            for path in group.sites
            if (texts[path].forward, texts[path].state) == (first.forward, first.state)
        ]
        return captures[0].site, tuple(same), first

    def _prove(
        self,
        names: dict[str, object],
        text: TaskText,
        captures: Sequence[CaptureSet],
        sites: Sequence[str],
    ) -> Proof:
        proofs = []
        try:
            for capture in captures:
                if capture.site in sites:
                    module = self._model.get_submodule(capture.site)
                    call = load_capture(self._folder.path, capture, self._device)
                    task = bound_task(names, module, text.state)
                    proofs.append(compare(task, module, call, text.inputs))
            alone, in_model = self._times(names, text, captures[0], sites)
        except (RuntimeError, MemoryError) as error:
            kind = "out of memory" if is_out_of_memory(error) else first_line(error, 160)
            raise UntranslatableError(f"the task can't be run: {kind}") from error
        return msgspec.structs.replace(combined(proofs), alone_us=alone, in_model_us=in_model)

    def _times(
        self,
        names: dict[str, object],
        text: TaskText,
        capture: CaptureSet,
        sites: Sequence[str],
    ) -> tuple[float, float]:
        """Return the times of a call alone and in the model, the lowest of up to three tries.

        Other programs only add time; a difference that stays is the module's surroundings.
        """
        alone = in_model = float("inf")
        for _ in range(TRIES):
            alone = min(alone, self._alone_us(names, text, capture, sites))
            with recorded_calls(self._model, {"": sites}, self._device) as calls:
                self._run()
            kinds = [each for each in calls[""].kinds if each.kind == capture.kind]
            in_model = min(in_model, *(each.call_us for each in kinds), in_model)
            if abs(alone / in_model - 1) <= self._options.max_gap:
                return alone, in_model
        raise UntranslatableError(
            f"alone it takes {alone:.0f} µs, in the model {in_model:.0f} µs: further apart than"
            f" --max-gap {self._options.max_gap:.0%}"
        )

    def _alone_us(
        self,
        names: dict[str, object],
        text: TaskText,
        capture: CaptureSet,
        sites: Sequence[str],
    ) -> float:
        """Return the task's time alone, with the weights of all sites in turn, as in the model."""
        call = load_capture(self._folder.path, capture, self._device)
        given = list(tensors_of((call["args"], call["kwargs"])))
        inputs = [given[number] for number in text.inputs]
        models = [bound_task(names, self._model.get_submodule(site), text.state) for site in sites]
        with torch.no_grad():
            return call_us([functools.partial(model, *inputs) for model in models], self._device)


def taken_line(task: TakenTask) -> str:
    """Return a line about a task for people."""
    proof = task.proof
    equal = "equal bit for bit" if proof.is_equal else f"within {proof.error:.1g}"
    return (
        f"taken: {task.name} ({task.class_name} ×{len(task.sites)}), {task.free_share:.1%} of a"
        f" step outside of libraries; {proof.sets} recorded calls {equal}; alone"
        f" {proof.alone_us:.0f} µs, in the model {proof.in_model_us:.0f} µs -> {task.file}"
    )


def weights_hash(module: torch.nn.Module) -> str:
    """Return the SHA-256 of a module's parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(bytes(flat.untyped_storage())[: flat.numel()])
    return digest.hexdigest()


def _costly(calls: ModuleCalls) -> list[KindOfCalls]:
    return sorted(calls.kinds, key=lambda each: -each.us)[:RECORDED_KINDS]


def _most_costly(calls: ModuleCalls) -> KindOfCalls:
    """Return the layout with the most time; raise UntranslatableError when it is a small part."""
    if not calls.kinds:
        raise UntranslatableError("it was not called when calls were recorded")
    most = max(calls.kinds, key=lambda each: each.us)
    if most.us < LEAST_KIND * calls.us:
        count = len(calls.kinds) + bool(calls.other_calls)
        raise UntranslatableError(
            f"it is called in {count} layouts or more, the most costly of which has only"
            f" {most.us / calls.us:.0%} of its time"
        )
    return most
