"""Run steps of a model on a backend: fill the step block from a plan, write it, replay a graph, read tokens.

    output = runner.collect(runner.submit(runner.fill(plan)))
    # one step

The caller decides the sequences of a step, their pages, and the use of its tokens. A block is host memory
with the layout of the variant's step block on the device. Each variant has two, so the next step can be
filled while one runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from zinc_rt.backends.base import Backend, device_kind
from zinc_rt.backends.spec import DeviceKind
from zinc_rt.engine.resident import NUMPY_DTYPES, Counts, Variant
from zinc_rt.engine.variants import ModelGraph, Variants
from zinc_rt.exec import DeadlineMissed, Fence, InFlight, Stream
from zinc_rt.host.errors import UsageError
from zinc_rt.ir.graph import SYMBOLS, TokenRole, maximum_dim
from zinc_rt.ir.rewrite import make_injected_name
from zinc_rt.kernels.reference.step_sequences import check_disjoint
from zinc_rt.mem.plan import STEP
from zinc_rt.model.builder import LAST_POSITION
from zinc_rt.model.sample_graph import LOGITS, TOKEN, SampleForm
from zinc_rt.sched.plan import StepPlan

COUNTS = "step.counts"
NONFINITE = "request[slot].nonfinite"
PARTS = {  # arrays of a StepPlan, and the buffers of the step block that they fill
    "token_id": "request[slot].token_id",
    "position": "request[slot].position",
    "slot": "request[slot].slot",
    "sequence": "request[slot].sequence",
    "state_source": "request[slot].state_source",
    "state_target": "request[slot].state_target",
    "logit_row": "request[slot].logit_row",
}
_COUNT_OF = {  # which of tokens, sequences and rows an array has an element for
    "token_id": 0, "position": 0, "slot": 0, "sequence": 0, "state_source": 1, "state_target": 1, "logit_row": 2,
}  # fmt: skip
TABLES = (("step.table_entry", "step.table_value"), ("step.table_entry_1", "step.table_value_1"))  # by page group
SLOW_SECONDS = 2.0  # a step without a deadline says that it still runs after so long
SILICON_FACTOR = 50.0  # times the predicted duration of a step


Planned = Callable[[StepPlan, np.ndarray], object]  # receives a scheduler's plan and its records, before the step


class StepBlock:
    """One step's input in host memory: `raw` has the bytes, `views` the arrays in it by buffer."""

    __slots__ = ("_arrays", "_rows", "_tables", "counts", "raw", "variant", "views")

    def __init__(self, variant: Variant) -> None:
        plan, graph = variant.plan, variant.graph
        self.variant = variant
        self.raw = np.zeros(plan.allocations[STEP].size_bytes, np.uint8)
        self.views: dict[str, np.ndarray] = {}
        capacity = [maximum_dim(symbol, plan.capacity) or 0 for symbol in SYMBOLS]
        for spec in graph.by_role("step"):
            placement = plan.placements[spec.name]
            part = self.raw[placement.offset_bytes : placement.offset_bytes + placement.size_bytes]
            self.views[spec.name] = part.view(NUMPY_DTYPES[spec.dtype]).reshape(variant.shape(spec.name, capacity))
        self.counts = self.views[COUNTS]
        self._arrays = [
            (name, self.views[buffer], _COUNT_OF[name]) for name, buffer in PARTS.items() if buffer in self.views
        ]
        self._tables = {
            group: (self.views[entry], self.views[value])
            for group, (entry, value) in enumerate(TABLES)
            if entry in self.views
        }

        direct = any(node.attrs.get("disjoint", False) for node in graph.nodes)
        self._rows = (
            tuple(self.views[PARTS[name]] for name in ("state_source", "state_target")) if direct else None
        )

    def fill(self, plan: StepPlan) -> None:
        """Copy a plan's counts, changed page-table entries and arrays. Arrays that the graph does not read
        are ignored."""
        counts, lengths = self.counts, (plan.tokens, plan.sequences, plan.rows)
        counts[:3] = lengths
        counts[3:] = 0
        for group, changes in enumerate(plan.table_changes):
            if changes and group in self._tables:
                count = counts[3 + group] = len(changes)
                entry, value = self._tables[group]
                entry[:count] = list(changes)
                value[:count] = list(changes.values())
        for name, view, of in self._arrays:
            length = lengths[of]
            view[:length] = getattr(plan, name)[:length]
        if LAST_POSITION in self.views:
            sequence, position = plan.sequence[: plan.tokens], plan.position[: plan.tokens]
            ends = np.append(sequence[1:] != sequence[:-1], True)
            self.views[LAST_POSITION][: plan.tokens] = position[ends][sequence]
        if not plan.rows:
            self.views[PARTS["logit_row"]][0] = 0  # unasked: the first token's row is computed

    def check_rows(self) -> None:
        """Check the rows of recurrent state of a step whose kernels read and write them directly, which its graph
        permits by `disjoint`. Every tier relies on it. Raises UsageError for a row of two sequences."""
        count = int(self.counts[1])
        if self._rows is None or count < 2:
            return
        source, target = self._rows
        try:
            check_disjoint("rows of recurrent state", source[:count], target[:count])
        except ValueError as error:
            raise UsageError(
                str(error), next="give each sequence of a step a target row that no other one has"
            ) from error

    def inject(self, label: str, value: np.ndarray) -> None:
        """Replace a labelled value for its consumers, f32 [tokens, ...]. Raises UsageError for another shape."""
        name = make_injected_name(label)
        shape = self.variant.shape(name, self.counts.tolist())
        if np.shape(value) != shape:
            raise UsageError(f"the value to inject for {label} has shape {np.shape(value)}, expected {shape}")
        self.views[name][: shape[0]] = value


def take_block(variant: Variant) -> StepBlock:
    """Return the least recently returned of a variant's two blocks."""
    blocks: list[StepBlock] = variant.blocks
    if not blocks:
        blocks += [StepBlock(variant), StepBlock(variant)]
    blocks.reverse()
    return blocks[0]


@dataclass(frozen=True, slots=True)
class StepHandle:
    """A step in flight. `counts` in the order of SYMBOLS."""

    variant: Variant
    counts: tuple[int, ...]
    fence: Fence


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The result of a step that has ended, read from the device on request, until the next step."""

    handle: StepHandle

    @property
    def tokens(self) -> np.ndarray:
        """Return the most likely token of each row, i32 [rows]."""
        return self._read_rows(TOKEN)

    @property
    def nonfinite(self) -> np.ndarray:
        """Return the index of the first non-finite logit of each row, i32 [rows], -1 if all are finite."""
        return self._read_rows(NONFINITE)

    def _read_rows(self, name: str) -> np.ndarray:
        """Copy an output of the head, empty if the layers that ran do not include it."""
        return self.read(name).copy() if name in self.handle.variant.graph.buffers else np.empty(0, np.int32)

    def read(self, name: str) -> np.ndarray:
        """Return the rows of an output that the step wrote, a view of the device's memory."""
        return self.handle.variant.read(name, self.handle.counts)

    def logits(self) -> np.ndarray:
        """Return the logits, f32 [rows, V], a view of the device's memory.

        Raises UsageError if the layers that ran do not include the head.
        """
        if LOGITS not in self.handle.variant.graph.buffers:
            raise UsageError("no logits were computed, because the layers that ran do not include the head")
        return self.read(LOGITS)


@dataclass(frozen=True, slots=True)
class StepDeadline:
    """The minimum step deadline of one kind of device: `first` applies before its kernels have run, then
    `seconds`; `unmeasured` if the memory bandwidth is unknown; otherwise `factor` times the prediction.
    """

    first: float
    seconds: float
    unmeasured: float = 0.0
    factor: float = SILICON_FACTOR


STEP_DEADLINES = {  # no row: a step is late only for a caller who waits
    # a simulated device compiles kernels that it has not run yet
    DeviceKind.SIMULATED: StepDeadline(600.0, 60.0, factor=0.0),
    DeviceKind.GPU: StepDeadline(2.0, 2.0),
    DeviceKind.API_GPU: StepDeadline(2.0, 2.0, unmeasured=60.0),
}


@dataclass(slots=True)
class Deadlines:
    """Step deadlines. `override`: the user's value in seconds; None: the device kind decides."""

    override: float | None = None

    def of(self, backend: Backend, variant: Variant, counts: Counts) -> float | None:
        """Return the deadline of a step in seconds; None for the host CPU, where only the waiting client can
        time out."""
        if self.override is not None:
            return self.override
        policy = STEP_DEADLINES.get(device_kind(backend))
        if policy is None:
            return None
        seconds = policy.seconds if variant.ran else policy.first
        if not backend.device.memory_bytes_per_second:
            return max(seconds, policy.unmeasured)
        return max(seconds, policy.factor * _predict_seconds(backend, variant, counts))

    def seconds(self, backend: Backend, variant: Variant, counts: Counts) -> float:
        """Return the deadline, or the longest possible wait if there is none."""
        allowed = self.of(backend, variant, counts)
        return threading.TIMEOUT_MAX if allowed is None else allowed


def _predict_seconds(backend: Backend, variant: Variant, counts: Counts) -> float:
    """An upper bound of a step's time: every token reads every weight once, at the memory's bandwidth."""
    allocations = variant.plan.allocations
    weights = sum(item.size_bytes for name, item in allocations.items() if name.startswith("weight/"))
    return weights * max(1, counts[0]) / backend.device.memory_bytes_per_second


class Runner:
    """Drives one model's variants on one stream. Not thread-safe: one host thread."""

    def __init__(
        self,
        variants: Variants,
        *,
        timeout_seconds: float | None = None,
        slow: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Create a runner. `slow` is called with a message when a step without a deadline exceeds
        SLOW_SECONDS. A recorder sets `planned`."""
        self.variants = variants
        self.backend = variants.backend
        self.stream = Stream("main")
        self.deadlines = Deadlines(timeout_seconds)
        self.steps = self.host_writes = self.waits = 0
        self._slow = slow
        self._slow_seconds = SLOW_SECONDS
        self._running: StepHandle | None = None
        self.planned: Planned | None = None

    def block(
        self,
        stage: ModelGraph,
        *,
        tokens: int,
        sequences: int,
        rows: int,
        entries: int = 0,
        form: SampleForm | None = None,
        inject: tuple[str, ...] = (),
        tapped: bool = False,
    ) -> StepBlock:
        """Return a block of the smallest sufficient variant, which is built if necessary. `entries`: maximum
        number of changes in a page table, for a step that binds pages filled earlier. `form`: see Variants.get."""
        return take_block(
            self.variants.find_fitting(
                stage, tokens, sequences, rows, entries=entries, form=form, inject=inject, tapped=tapped
            )
        )

    def fill(
        self,
        plan: StepPlan,
        *,
        role: TokenRole = "decode",
        form: SampleForm | None = None,
        inject: tuple[str, ...] = (),
        tapped: bool = False,
    ) -> StepBlock:
        """Return a block filled from a plan, whose tokens all have `role`; the sampling part of a `form` is
        left to the caller."""
        block = self.block(
            self.variants.choose_stage(plan.tokens, plan.sequences, role),
            tokens=plan.tokens,
            sequences=plan.sequences,
            rows=plan.rows,
            entries=max(map(len, plan.table_changes), default=0),
            form=form,
            inject=inject,
            tapped=tapped,
        )
        block.fill(plan)
        return block

    def submit(self, block: StepBlock) -> StepHandle:
        """Submit a step: one write and one replay. Raises InFlight if the previous step has not been
        collected, UsageError as `StepBlock.check_rows`."""
        if self._running is not None:
            raise InFlight("a step is in flight", next="collect it before submitting the next")
        block.check_rows()
        variant = block.variant
        variant.write_step(block.raw)
        self.host_writes += 1
        fence = variant.submit(self.stream)
        self.steps += 1
        self._running = handle = StepHandle(variant, tuple(block.counts.tolist()), fence)
        return handle

    def collect(self, handle: StepHandle, timeout_seconds: float | None = None) -> StepOutput:
        """Wait for a step, at most `timeout_seconds` (default: its deadline).

        Raises DeadlineMissed with the tier's diagnostics; the step then remains in flight.
        """
        try:
            self._wait(handle, timeout_seconds)
        except BaseException:
            if handle.fence.done():  # it ended, badly
                self._running = None
            raise
        self._running = None
        handle.variant.ran = True
        return StepOutput(handle)

    def drain(self) -> bool:
        """Wait for an abandoned step; return False if it does not complete."""
        if self._running is not None:
            with suppress(Exception):  # what it ended with is nobody's concern
                self.collect(self._running)
        return self._running is None

    @property
    def submission(self) -> dict[str, int]:
        """Return the host cost of steps, for reports: the backend's Submissions, and the writes and steps
        here. `submissions` are the backend's `fast` and `careful` submissions."""
        submissions = self.backend.submissions
        return {
            "submissions": submissions.fast + submissions.careful,
            "fast": submissions.fast,
            "careful": submissions.careful,
            "host_writes": self.host_writes,
            "doorbells": submissions.doorbells,
            "steps": self.steps,
            "waits": self.waits,
        }

    def _wait(self, handle: StepHandle, timeout_seconds: float | None) -> None:
        replays = handle.variant.replays
        self.waits += 1
        if timeout_seconds is None:
            timeout_seconds = self.deadlines.of(self.backend, handle.variant, handle.counts)
        if timeout_seconds is not None:
            replays.wait(timeout_seconds)
            return
        started = time.monotonic()
        while not handle.fence.done():
            if _wait_at_most(handle.fence, self._slow_seconds - (time.monotonic() - started)):
                break
            seconds = time.monotonic() - started
            self._slow(f"step {self.steps} has taken {seconds:.0f} s so far, {handle.counts[0]} tokens at once")
            self._slow_seconds *= 2  # steps that are all as slow are told of once
        replays.wait(threading.TIMEOUT_MAX)


def _wait_at_most(fence: Fence, seconds: float) -> bool:
    """Whether the fence was reached. The error of the work is raised by the last wait."""
    try:
        fence.wait(max(0.0, seconds))
    except DeadlineMissed:
        return fence.done()
    except Exception:
        return True
    return True
