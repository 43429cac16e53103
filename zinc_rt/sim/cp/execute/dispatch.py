"""Launch of dispatches (pm4.md §3.2, §3.3, §5), except for the execution of the waves."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

from zinc_rt.sim.cp.clocks import WorkKind
from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.shader_engine import Accesses, ShaderDispatch, ShaderEngine
from zinc_rt.sim.tables.layout import View
from zinc_rt.sim.tables.registers import BY_ADDRESS, DISPATCH_INITIATOR, NUM_THREAD_X, SH, START_X

COMPUTE_SHADER_EN, PARTIAL_TG_EN, FORCE_START_AT_000 = 1 << 0, 1 << 1, 1 << 2
USE_THREAD_DIMENSIONS, CS_W32_EN = 1 << 5, 1 << 15
MAX_GROUP_THREADS = 1024
_INITIATOR_BITS = BY_ADDRESS[SH.base + DISPATCH_INITIATOR].bits
CODE_BYTES = 64  # of a program's start, for stale-code findings


def dispatch_direct(channel: ComputeChannel, packet: View) -> None:
    launch(channel, (packet.dim_x, packet.dim_y, packet.dim_z), packet.initiator)


def dispatch_indirect(channel: ComputeChannel, packet: View) -> None:
    va = channel.align(packet.address, 4)
    dims = struct.unpack("<3I", channel.space.read(va, 12))
    channel.record_accesses(reads=((va, 12),))
    launch(channel, (dims[0], dims[1], dims[2]), packet.initiator)


def launch(channel: ComputeChannel, dims: tuple[int, int, int], initiator: int) -> None:
    """Launch the program in the SH registers with the grid and initiator of the packet."""
    if not initiator & COMPUTE_SHADER_EN:
        channel.report_unverified(
            "dispatch-disabled", f"initiator {initiator:#x} has bit 0 (COMPUTE_SHADER_EN) clear: nothing launches"
        )
        return
    extra = initiator & ~_INITIATOR_BITS[channel.generation]
    if extra:
        channel.report_unverified("reserved-bits", f"initiator bits {extra:#x} are undefined on this chip")
    sh = channel.registers.sh
    program_va = channel.registers.find_program_va()
    sizes = [sh.get(NUM_THREAD_X + axis, 0) for axis in range(3)]
    full = [
        size & (0x1FFF if channel.generation == 12 and axis < 2 else 0xFFFF) for axis, size in enumerate(sizes)
    ]
    if not 0 < full[0] * full[1] * full[2] <= MAX_GROUP_THREADS:
        channel.report_unverified(
            "group-size", f"workgroups of {full[0]}x{full[1]}x{full[2]} threads: expected 1 to {MAX_GROUP_THREADS}"
        )
        return
    if initiator & USE_THREAD_DIMENSIONS:
        groups = [-(-dim // size) for dim, size in zip(dims, full, strict=True)]
        last = [(dim - 1) % size + 1 for dim, size in zip(dims, full, strict=True)]
    else:
        groups = list(dims)
        partial = [size >> 16 for size in sizes]
        last = [
            part if initiator & PARTIAL_TG_EN and part else size for part, size in zip(partial, full, strict=True)
        ]
    start = [0, 0, 0] if initiator & FORCE_START_AT_000 else [sh.get(START_X + axis, 0) for axis in range(3)]
    if any(start):
        channel.device.consulted.add_mark("dispatch with START")
    if channel.device.behaviour.dims_with_start == "end":
        groups = [max(end - first, 0) for end, first in zip(groups, start, strict=True)]
    if 0 in groups:
        return  # nothing launches
    channel.space.fetch(program_va, 4)
    dispatch = ShaderDispatch(
        channel.queue,
        channel.space,
        channel.generation,
        program_va,
        (groups[0], groups[1], groups[2]),
        (start[0], start[1], start[2]),
        (full[0], full[1], full[2]),
        (last[0], last[1], last[2]),
        bool(initiator & CS_W32_EN),
        initiator,
        dict(sh),
        channel.label(),
        functools.partial(channel.finding, at=channel.at),
    )
    engine = channel.device.engine
    waves = _make_runner(engine, dispatch)
    channel.launch(
        WorkKind.WAVES,
        waves,
        code=((program_va, CODE_BYTES),),
        abandon=lambda: engine.abandon(dispatch),
    )


def _make_runner(engine: ShaderEngine, dispatch: ShaderDispatch) -> Callable[[], Accesses | None]:
    """Run the dispatch's waves, with their effect on host memory cached by GL2."""
    space, started = dispatch.space, False

    def advance() -> Accesses | None:
        nonlocal started
        if not started:
            space.before_waves()
            started = True
        accesses = engine.run(dispatch)
        if accesses is not None:
            parts = (accesses.reads, accesses.scalar_reads, accesses.writes, accesses.atomics)
            space.after_waves(item for ranges in parts for item in ranges)
        return accesses

    return advance
