"""Capture one step of a log as a GPU tier would submit it: memory, packets, and expected outputs.

The step is prepared on the tier but not submitted, so that a step that hangs can be captured too. The
expected outputs are those of T-CPU after the same steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.engine.devices import ORACLE, Choice
from zinc_rt.engine.resident import Variant
from zinc_rt.host.errors import UsageError
from zinc_rt.pm4.disassemble import disassemble
from zinc_rt.pm4.generation import Generation
from zinc_rt.replay.run import select_steps
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.rebuilt import Opener, RebuiltModel, hash_value, make_opener, read_value
from zinc_rt.trace.tape import RecordedStep, Tape, read_tape, require_inputs
from zinc_rt.trace.weight_sources import find_sources

OWN = ("staging",)  # the backend's, which no packet of a step names


@dataclass(frozen=True, slots=True)
class CapturedRegion:
    """One allocation. `placement`: the value of kmd.transport.Placement."""

    name: str
    gpu_va: int
    size_bytes: int
    placement: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ExpectedBuffer:
    """The expected contents of a buffer afterwards: T-CPU's bytes, row-major. `recorded`: whether the log
    has the same bytes."""

    name: str
    label: str
    dtype: str
    shape: tuple[int, ...]
    gpu_va: int
    content: bytes
    recorded: bool


@dataclass(frozen=True, slots=True)
class StepCapture:
    """One step, ready to be submitted. `words`: the ring's dwords, whose fence stores `fence_value` (64 bits) at
    `fence_va`. `names`: (VA, bytes, name) of everything with a name. `listing`: the disassembled indirect
    buffer.
    """

    title: str
    tier: str
    arch: str
    generation: Generation
    device: dict[str, Any]
    recorded_device: dict[str, Any]
    regions: tuple[CapturedRegion, ...]
    words: tuple[int, ...]
    fence_va: int
    fence_value: int
    expected: tuple[ExpectedBuffer, ...]
    names: tuple[tuple[int, int, str], ...]
    listing: str
    kernels: tuple[str, ...]
    notes: tuple[str, ...]


def capture_step(
    log_path: str | Path,
    choice: Choice | Opener,
    *,
    step: int | None = None,
    model: str | Path | None = None,
    timeout_seconds: float | None = None,
) -> StepCapture:
    """Capture step `step` of a log; default: the step that ended with a fault, else the last. Earlier
    steps run on the tier.

    Raises UsageError for a tier that submits no packets, and the errors of `replay`.
    """
    with LogReader(log_path) as log:
        tape = read_tape(log)
        require_inputs(log, tape)
        steps = select_steps(tape, choose_step(tape) if step is None else step, 0)
        sources = find_sources(log, tape, model)
        with RebuiltModel(log, tape, sources, make_opener(choice), timeout_seconds=timeout_seconds) as suspect:
            backend = suspect.backend
            if not isinstance(backend, AmdBackend):
                raise UsageError(
                    f"--emit-repro FILE: tier {backend.spec.tier} submits no packets to a driver",
                    next="use a GPU tier: --tiers t1",
                )
            for item in steps[:-1]:
                suspect.run(item)
            target = steps[-1]
            variant = suspect.write(target)
            with RebuiltModel(
                log, tape, sources, make_opener(ORACLE), tapped=tape.graphs[target.graph].tapped
            ) as oracle:
                for item in steps[:-1]:
                    oracle.run(item)
                right = oracle.run(target)
                expected = tuple(_list_expected_buffers(target, variant, right))
            return _build_capture(suspect, tape, target, variant, expected)


def choose_step(tape: Tape) -> int:
    """Return the first step that ended with a fault, else the last."""
    known = {item.number for item in tape.steps}
    faulty = [fault.step for fault in tape.faults if fault.step in known]
    return faulty[0] if faulty else tape.steps[-1].number


def _list_expected_buffers(step: RecordedStep, variant: Variant, right: Variant) -> Iterable[ExpectedBuffer]:
    """Return the expected buffers: the recorded ones, or the graph's outputs if the step never ended."""
    recorded = {output.buffer: output for output in step.outputs}
    for name in recorded or [spec.name for spec in variant.graph.by_role("output")]:
        placement = variant.plan.placements[name]
        value = read_value(right, name, step)
        record = recorded.get(name)
        yield ExpectedBuffer(
            name,
            record.label if record is not None else "",
            variant.graph.buffers[name].dtype,
            value.shape,
            variant.buffers[placement.allocation].storage.gpu_va + placement.offset_bytes,
            value.tobytes(),
            record is not None and record.sha256 == hash_value(value),
        )


def _build_capture(
    suspect: RebuiltModel, tape: Tape, step: RecordedStep, variant: Variant, expected: tuple[ExpectedBuffer, ...]
) -> StepCapture:
    backend = suspect.backend
    assert isinstance(backend, AmdBackend)
    ring, ready = backend.prepare_submission(variant.built, suspect.stream(step.stream))
    value = ring.timeline.submitted + 1
    if ready.fence_value is not None:
        ready.fence_value.value = value
    device = backend.device
    names = {(region.va, region.size_bytes, region.name) for region in backend.memory.addresses}
    names |= set(_list_parts(variant))
    regions = tuple(
        CapturedRegion(
            block.region.name,
            block.device.gpu_va,
            block.device.size_bytes,
            block.device.placement.value,
            backend.content(block.device),
        )
        for block in backend.memory.blocks
        if block.region.name not in OWN
    )
    inside = [name for name in sorted(names) if any(_qualify_name(name, region) for region in regions)]
    changed = suspect.find_other_kernels()
    notes = [f"kernels that differ from the recorded ones: {', '.join(changed)}"] if changed else []
    other = [buffer.name for buffer in expected if not buffer.recorded]
    if other and step.outputs:
        notes.append(f"the recorded run had bits other than expected here in: {', '.join(other)}")
    if not step.outputs:
        notes.append("the recorded step never ended")
    if device.simulated:
        notes.append("captured on a simulated device: packets and addresses are those of this build")
    symbol = backend.memory.addresses.name
    return StepCapture(
        title=f"{tape.graphs[step.graph].graph.name}, step {step.number}",
        tier=backend.spec.tier,
        arch=device.arch,
        generation=backend.generation,
        device={
            "name": device.name,
            "kernel": device.kernel,
            "firmware": device.firmware,
            "simulated": device.simulated,
        },
        recorded_device=dict(tape.header.get("device", {})),
        regions=regions,
        words=tuple(ready.words),
        fence_va=ring.timeline.gpu_va,
        fence_value=value,
        expected=expected,
        names=tuple(inside),
        listing=disassemble(variant.built.ib.words, backend.generation, symbol=symbol),
        kernels=tuple(sorted(variant.built.kernels())),
        notes=tuple(notes),
    )


def _list_parts(variant: Variant) -> Iterable[tuple[int, int, str]]:
    """Yield the parts of the graph's buffers with storage, with their IR names."""
    for buffer, parts in variant.built.placed.items():
        if buffer.storage is not None:
            yield from parts


def _qualify_name(name: tuple[int, int, str], region: CapturedRegion) -> bool:
    return region.gpu_va <= name[0] and name[0] + name[1] <= region.gpu_va + region.size_bytes
