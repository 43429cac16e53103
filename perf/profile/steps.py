"""The time of a step: node by node, by the tier's own clock, with a row for the time outside nodes."""

from __future__ import annotations

import re
import time
from collections import abc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from zinc_rt.backends.times import Times
from zinc_rt.engine.engine import Engine, Sequence
from zinc_rt.host.chrome_trace import make_document, make_process_name, make_thread_name
from zinc_rt.host.errors import UsageError
from zinc_rt.ir.graph import Node, OpGraph, TokenRole
from zinc_rt.mem.traffic import list_decode_traffic
from zinc_rt.perf.structure.lab import make_prompt
from zinc_rt.trace.chrome import HOST, QUEUES, format_node_title, make_dispatch_slices, make_slice

WITHIN = 0.05  # fraction of the step that may be unexplained by nodes without a warning
CLOCKS_APART = 1.02  # a span of the device longer than the host's whole step by more: one of the clocks is wrong
PLAN = "the plan's own"  # a dispatch of no node: it makes the grids
GROUPS = ("op", "node", "kernel", "layer")
_LAYER = re.compile(r".*-(\d+)\Z")


@dataclass(frozen=True, slots=True)
class TimedStep:
    """One timed step: its begin and the arrival of its tokens, by the host's monotonic clock."""

    began_ns: int
    ended_ns: int
    times: Times

    @property
    def nanoseconds(self) -> int:
        return self.ended_ns - self.began_ns


@dataclass(slots=True)
class MeasuredSteps:
    """`plain_ns` are the same steps without timestamps. `position` is that of the middle one's token; `tokens` is
    per step.
    """

    graph: OpGraph
    tokens: int
    position: int
    steps: list[TimedStep] = field(default_factory=list)
    plain_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProfileWorkload:
    """`position` is the number of tokens before the first step. `prefill` is the number of tokens of a prompt
    step, 0 for decode.
    """

    steps: int = 8
    position: int = 4
    prefill: int = 0

    def check(self, ctx: int) -> None:
        """Check that the workload fits. Raise UsageError if it cannot run."""
        for name, minimum in (("steps", 1), ("position", 0), ("prefill", 0)):
            if getattr(self, name) < minimum:
                raise UsageError(f"--{name} {getattr(self, name)}: expected {minimum} or more")
        # without readings, with them, a warm-up of each
        prefill = self.prefill or self.position + 2 * self.steps + 2
        if prefill > ctx:
            raise UsageError(
                f"{prefill} tokens do not fit the context of {ctx}",
                next="use a larger --ctx, fewer --steps, or another --position",
            )


def measure(
    engine: Engine,
    load: ProfileWorkload,
    *,
    advance: Callable[[int], None] = lambda steps: None,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> MeasuredSteps:
    """Run a warm-up step of each kind, then steps without timestamps and as many with them, on one engine."""
    prompt = make_prompt(engine.model.vocab, max(load.prefill, load.position, 1))
    role: TokenRole = "prompt" if load.prefill else "decode"
    stage = engine.variants.choose_stage(load.prefill or 1, 1, role)
    measured = MeasuredSteps(
        engine.graph(stage), load.prefill or 1, 0 if load.prefill else load.position + 3 * load.steps // 2
    )
    sequence: Sequence | None = None
    if not load.prefill:
        sequence = engine.open()
        if load.position:
            engine.extend(sequence, prompt[: load.position], rows="last", role="prompt")

    def step(timed: bool) -> TimedStep:
        engine.variants.timed = timed
        taken = engine.open() if sequence is None else sequence
        tokens = prompt[: load.prefill] if sequence is None else [prompt[0]]
        try:
            start = clock_ns()
            output = engine.advance([(taken, tokens)], [len(tokens) - 1], role=role)
            ended = clock_ns()
        finally:
            engine.variants.timed = False
            if sequence is None:
                engine.release(taken)
        advance(1)
        return TimedStep(start, ended, output.handle.variant.built.times())

    for timed in (False, True):
        step(timed)
        for _ in range(load.steps):
            seen = step(timed)
            if timed:
                measured.steps.append(seen)
            else:
                measured.plain_ns.append(seen.nanoseconds)
    return measured


@dataclass(slots=True)
class ProfileRow:
    """Nanoseconds of all measured steps together. `launch_ns` is the part before a dispatch began: its packets,
    and the wait and cache invalidation before it. `bytes` is per step; None if unknown.
    """

    name: str
    kernels: dict[str, int] = field(default_factory=dict)  # with their calls
    calls: int = 0
    nanoseconds: int = 0
    launch_ns: int = 0
    bytes: int | None = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """`rows` sorted by time, longest first. Together with `host_ns` they add up to the steps, to the nanosecond:
    `host_ns` is the time of a step before its first and after its last dispatch, on the host or in transfer.
    """

    rows: tuple[ProfileRow, ...]
    steps: int
    step_ns: int  # all steps together
    host_ns: int
    wrong: tuple[str, ...]  # indicators that the clock is unreliable

    @property
    def nodes_ns(self) -> int:
        return sum(row.nanoseconds for row in self.rows)

    @property
    def nodes_share(self) -> float:
        return self.nodes_ns / self.step_ns if self.step_ns else 0.0


def profile(measured: MeasuredSteps, by: str) -> Profile:
    """Build a profile. `by` is one of GROUPS. Raise UsageError for another grouping, or if no step was timed."""
    if by not in GROUPS:
        raise UsageError(f"--by {by}: expected {', '.join(GROUPS)}")
    if not measured.steps or not all(step.times.dispatches for step in measured.steps):
        raise UsageError("no dispatch of these steps was timed")
    rows: dict[str, ProfileRow] = {}
    traffic = _count_traffic(measured)
    for step in measured.steps:
        for node, kernel, nanoseconds, launch in _list_dispatches(step.times):
            name = _name(node, kernel, by)
            row = rows.setdefault(name, ProfileRow(name, bytes=0 if measured.tokens == 1 else None))
            row.kernels[kernel] = row.kernels.get(kernel, 0) + 1
            row.calls += 1
            row.nanoseconds += nanoseconds
            row.launch_ns += launch
    for node, kernel in _find_longest_dispatches(measured.steps):
        row = rows[_name(node, kernel, by)]
        if row.bytes is not None:
            row.bytes += traffic.get(id(node), 0)
    step_ns = sum(step.nanoseconds for step in measured.steps)
    host_ns = step_ns - sum(step.times.span_ns for step in measured.steps)
    return Profile(
        tuple(sorted(rows.values(), key=lambda row: -row.nanoseconds)),
        len(measured.steps),
        step_ns,
        host_ns,
        tuple(dict.fromkeys(_find_implausible_readings(measured.steps))),
    )


def _list_dispatches(times: Times) -> Iterator[tuple[Node | None, str, int, int]]:
    """Yield (node, kernel, nanoseconds, nanoseconds before it began), from the end of the previous dispatch to its
    own end.
    """
    before = times.dispatches[0].began_ns if times.dispatches else 0
    for dispatch in times.dispatches:
        yield dispatch.node, dispatch.kernel, dispatch.ended_ns - before, dispatch.began_ns - before
        before = dispatch.ended_ns


def _name(node: Node | None, kernel: str, by: str) -> str:
    if by == "kernel":
        return kernel
    if node is None:
        return PLAN
    if by == "op":
        return node.op.name
    if by == "node":
        return format_node_title(node)
    name = node.label or node.outputs[0]
    layer = _LAYER.match(name)
    return f"layer {layer[1]}" if layer else name


def _find_longest_dispatches(steps: abc.Sequence[TimedStep]) -> list[tuple[Node, str]]:
    """Return each node with the kernel of its longest dispatch, to which its bytes are attributed."""
    longest: dict[int, tuple[int, Node, str]] = {}
    for dispatch in steps[0].times.dispatches:
        if (
            dispatch.node is not None
            and dispatch.nanoseconds >= longest.get(id(dispatch.node), (0, dispatch.node, ""))[0]
        ):
            longest[id(dispatch.node)] = dispatch.nanoseconds, dispatch.node, dispatch.kernel
    return [(node, kernel) for _, node, kernel in longest.values()]


def _count_traffic(measured: MeasuredSteps) -> dict[int, int]:
    """Return the bytes that a node reads and writes for one token, by the node's id; empty for a prompt's step."""
    if measured.tokens != 1:
        return {}
    return {
        id(node): sum(
            row.read_bytes + row.written_bytes
            for row in list_decode_traffic(replace(measured.graph, nodes=(node,)), position=measured.position)
        )
        for node in measured.graph.nodes
    }


def _find_implausible_readings(steps: Iterable[TimedStep]) -> Iterator[str]:
    for step in steps:
        yield from step.times.wrong()
        if step.times.span_ns > CLOCKS_APART * step.nanoseconds:
            yield (
                f"{step.times.clock} says that the dispatches took longer than the whole step by the host's "
                "clock: one of the two is wrong"
            )


def clock_offset_ns(step: TimedStep) -> int:
    """Return the offset from the step's clock to the host's monotonic one. A device's clock is aligned so that its
    last timestamp is when the host observed the end; any additional wait appears before it.
    """
    if not step.times.dispatches or step.times.host_time:
        return 0
    return step.ended_ns - step.times.dispatches[-1].ended_ns


NANO = 1e-9


def build_timeline(measured: MeasuredSteps, where: str) -> dict[str, Any]:
    """Build the timeline. `where`: tier and device. A device's clock is aligned with the host's at each step's
    end."""
    first = measured.steps[0]
    events: list[dict[str, Any]] = [
        make_process_name(where, HOST),
        make_thread_name(HOST, "host"),
        make_thread_name(QUEUES, f"queue main, by {first.times.clock}"),
    ]
    for number, step in enumerate(measured.steps):
        start = (step.began_ns - first.began_ns) * NANO
        about = {"step": number, "tokens": measured.tokens}
        events.append(make_slice(f"step {number}", HOST, start, step.nanoseconds * NANO, about))
        events += make_dispatch_slices(_place_dispatches(step, first.began_ns), QUEUES, {"step": number})
    return make_document(events, {"clock": first.times.clock, "simulated": first.times.simulated})


def _place_dispatches(step: TimedStep, zero_ns: int) -> list[tuple[str, str, float, float]]:
    shift = clock_offset_ns(step) - zero_ns
    return [
        (
            "" if dispatch.node is None else format_node_title(dispatch.node),
            dispatch.kernel,
            (dispatch.began_ns + shift) * NANO,
            (dispatch.ended_ns + shift) * NANO,
        )
        for dispatch in step.times.dispatches
    ]
