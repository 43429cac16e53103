"""Stops in a launch whose kernel is compiled with Checks.debug, and the state of its waves there.

Such a launch runs on one thread, in an order that depends on its inputs only. Running it again therefore reaches
the same state at the same step, where steps count executed instructions of all waves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zinc_rt.sim.shader.checks.finding_text import FindingText, WaveFinding, group_id
from zinc_rt.sim.shader.emit.debug import ANY, DEBUG, HISTORY, IN_LDS, IN_MEMORY, IN_STATE, STOP_OF_WATCH, WATCHED
from zinc_rt.sim.shader.launch_setup import LaunchSetup
from zinc_rt.sim.shader.layout import (
    EXEC_HI,
    EXEC_LO,
    FINDING,
    SCC,
    STATE,
    VGPR_LIMIT,
    RecordBlock,
    Status,
    aligned,
    state_bytes,
)
from zinc_rt.sim.shader.run.group_runner import Stop
from zinc_rt.sim.shader.run.group_shapes import make_group_shapes
from zinc_rt.sim.shader.run.kernels import CompiledKernel

HISTORY_STEPS = 1 << 20  # of which the wave and the pc are known
WATCHES = 32
_Hook = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)


@dataclass(frozen=True, slots=True)
class DebuggedLaunch:
    """A launch that is about to run."""

    kernel: CompiledKernel
    launch: LaunchSetup
    texts: FindingText

    @property
    def entry(self) -> int:
        """Return the offset of the first instruction in the compiled code; reported pcs are relative to it."""
        return self.kernel.variant.entry

    def waves_of(self, group: int) -> int:
        """Return the number of waves of a workgroup, by its linear number."""
        last = [size - 1 for size in self.launch.groups]
        x, y, z = group_id(group, self.launch.groups, (0, 0, 0))
        which = sum((index == end) << axis for axis, (index, end) in enumerate(zip((x, y, z), last, strict=True)))
        return int(make_group_shapes(self.launch)[which]["waves"][0])


class WaveView:
    """Registers, LDS and progress of a wave at a stop, as views of the engine's memory that are valid until it
    continues.
    """

    def __init__(self, address: int, of: DebuggedLaunch, running: int | None = None) -> None:
        """`running`: the pc of the wave that is stopped, else None."""
        launch = of.launch
        self._address, self._of, self._running = address, of, running
        self.lanes = launch.wave
        size = state_bytes(launch.wave, launch.vgprs)
        raw = _bytes_at(address, size)
        self.header = raw[: STATE.size_bytes].view(STATE.dtype)[0]
        self._vgprs = raw[STATE.size_bytes :].view(np.uint32).reshape(2, launch.vgprs, launch.wave)

    @property
    def index(self) -> int:
        """Return the wave's number in the launch."""
        return int(self.header["wave_index"])

    @property
    def number(self) -> int:
        """Return the wave's number in its workgroup."""
        return int(self.header["wave_in_group"])

    @property
    def group(self) -> int:
        """Return the linear number of its workgroup."""
        return int(self.header["group"])

    @property
    def group_id(self) -> tuple[int, int, int]:
        return group_id(self.group, self._of.launch.groups, self._of.launch.start)

    @property
    def running(self) -> bool:
        """Return whether it is the stopped wave; the others are suspended, have ended or have not started."""
        return self._running is not None

    @property
    def pc(self) -> int:
        """Return the offset of its next instruction from the kernel's entry."""
        if self._running is not None:
            return self._running
        return int(self.header["pc"]) - self._of.entry if self.header["resume"] else 0

    @property
    def progress(self) -> str:
        """Return what the wave does, in words."""
        status = int(self.header["status"])
        if self.running:
            return "stopped here"
        if status == Status.DONE:
            return "ended"
        if not self.header["resume"]:
            return "not started"
        return "waits at the barrier" if status == Status.BARRIER else "suspended"

    @property
    def exec(self) -> int:
        sgprs = self.header["sgprs"]
        return (int(sgprs[EXEC_LO]) | int(sgprs[EXEC_HI]) << 32) & (1 << self.lanes) - 1

    @property
    def barrier_phase(self) -> int:
        return int(self.header["barrier_phase"])

    def register(self, key: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of a register, [lanes] or [1] uint32, and its undefined bits. `key`: as in
        emit/slots.py."""
        if key < VGPR_LIMIT:
            return self._vgprs[0, key], self._vgprs[1, key]
        index = key - VGPR_LIMIT
        undefined = self.header["sgpr_undefined"][index : index + 1]
        if index == SCC:
            return np.array([self.header["scc"] & 1], np.uint32), undefined & 1
        return self.header["sgprs"][index : index + 1], undefined

    def offset_of(self, key: int, lane: int) -> int:
        """Return the offset of a register (of one lane of it) in the wave's state."""
        if key < VGPR_LIMIT:
            return STATE.size_bytes + (key * self.lanes + lane) * 4
        if key == VGPR_LIMIT + SCC:
            return STATE.fields["scc"].offset
        return STATE.fields["sgprs"].offset + 4 * (key - VGPR_LIMIT)

    @property
    def has_started(self) -> bool:
        """Return whether the wave has executed an instruction: registers before that are not yet filled in."""
        return self.running or bool(self.header["resume"]) or int(self.header["status"]) == Status.DONE

    def watched_value(self, base: int, offset: int, size_bytes: int) -> int:
        """Return the bits of a watched value; `base` and `offset` as in WATCHED."""
        at = {IN_MEMORY: 0, IN_STATE: self._address, IN_LDS: int(self.header["lds_base"])}[base] + offset
        return int.from_bytes(ctypes.string_at(at, size_bytes), "little")

    def lds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the LDS of the workgroup, [bytes] uint8, and for each byte whether it was stored; all true if the
        checks do not record this.
        """
        size = self._of.launch.lds_bytes
        data = _bytes_at(int(self.header["lds_base"]), size)
        if not self._of.kernel.variant.checks.fast or not size:
            return data, np.ones(size, bool)
        shadow = _bytes_at(int(self.header["lds_shadow"]), -(-size // 4))
        bits = shadow[:, None] >> np.arange(4, dtype=np.uint8) & 1
        return data, bits.reshape(-1)[:size].astype(bool)

    def waves(self) -> Iterator[WaveView]:
        """Return the waves of the workgroup, in order."""
        launch = self._of.launch
        size = state_bytes(launch.wave, launch.vgprs)
        for number in range(self._of.waves_of(self.group)):
            running = self._running if number == self.number else None
            yield WaveView(self._address + (number - self.number) * size, self._of, running)


def _bytes_at(address: int, size_bytes: int) -> np.ndarray:
    if not size_bytes:
        return np.zeros(0, np.uint8)
    return np.frombuffer(memoryview((ctypes.c_uint8 * size_bytes).from_address(address)), np.uint8)


@dataclass(frozen=True, slots=True)
class WaveStop:
    """A wave before an instruction. `reasons`: bits STOP_* of emit/debug.py. `step`: instructions executed so
    far. `phase`: barriers that its workgroup has passed. `watch`: index of the watch that changed, with the old
    and new value, if STOP_OF_WATCH is set.
    """

    wave: WaveView
    reasons: int
    step: int
    phase: int
    watch: tuple[int, int, int] | None = None


class DebugListener(Protocol):
    """Decides where waves stop. Called from the thread that runs the waves."""

    def begins(self, launch: DebuggedLaunch) -> None:
        """Called before a launch runs: set the stops of its first part."""

    def stopped(self, stop: WaveStop) -> bool:
        """Called when a wave is at a stop: wait until it should continue, and return whether it continues (else
        all waves end).
        """

    def reported(self, finding: WaveFinding) -> None:
        """The engine reports a finding."""

    def ended(self, stop: Stop) -> None:
        """The launch has ended."""


class WaveDebugger:
    """The debugger's side of the compiled code: sets stops, and receives them."""

    def __init__(self, listener: DebugListener) -> None:
        self.listener = listener
        self.error: BaseException | None = None  # raised by the listener; the launch then ends
        self._block = RecordBlock(DEBUG)
        self._history = np.zeros(HISTORY_STEPS, HISTORY.dtype)
        self._watches = aligned(WATCHES * WATCHED.size_bytes).view(WATCHED.dtype)
        self._stops = np.zeros(1, np.uint8)
        self._hook = _Hook(self._called)
        self._launch: DebuggedLaunch | None = None
        self._context: RecordBlock | None = None
        self._findings = np.zeros(0, FINDING.dtype)
        block = self._block
        block["hook"] = ctypes.cast(self._hook, ctypes.c_void_p).value or 0
        block["history_mask"], block["history"] = HISTORY_STEPS - 1, int(self._history.ctypes.data)
        block["watches"] = int(self._watches.ctypes.data)

    # --- for the engine

    def begins(self, launch: DebuggedLaunch) -> None:
        self._launch, self.error = launch, None
        self._stops = np.zeros(len(launch.kernel.variant.code) // 4 + 1, np.uint8)
        block = self._block
        block["stops"] = int(self._stops.ctypes.data)
        block["steps"], block["end"], block["findings"] = 0, 0, 0
        self.stop_at_step(None)
        self.stop_outside(None)
        self._watches["armed"] = 0
        try:
            self.listener.begins(launch)
        except Exception as error:
            self.error, block["end"] = error, 1

    def attach(self, context: RecordBlock, findings: np.ndarray) -> None:
        """Attach to the context of the thread that runs the launch."""
        context["debug"] = self._block.address
        self._context, self._findings = context, findings

    def _called(self, state: int, context: int, pc: int) -> int:
        try:
            assert self._launch is not None and self._context is not None
            block, watch = self._block, None
            wave = WaveView(state, self._launch, pc - self._launch.entry)
            if block["reasons"] & STOP_OF_WATCH:
                hit = block["watch_hit"]
                watch = hit, int(self._watches["before"][hit]), int(self._watches["value"][hit])
            phase = self._context["barrier_phase"]
            stop = WaveStop(wave, block["reasons"], block["steps"], phase, watch)
            if self.listener.stopped(stop):
                return 0
        except BaseException as error:
            self.error = error
        block["end"] = 1
        return 1

    # --- for the listener

    @property
    def steps(self) -> int:
        """Return the number of executed instructions."""
        return self._block["steps"]

    def set_stops(self, offsets: list[int]) -> None:
        """Stop at these instructions: byte offsets in the compiled code."""
        self._stops.fill(0)
        self._stops[[offset // 4 for offset in offsets]] = 1

    def stop_at_step(self, step: int | None, wave: int = ANY) -> None:
        """Stop from this step on, in this wave (WaveView.index) or any; None: never. May be called from other
        threads while waves run."""
        self._block["limit_wave"] = wave
        self._block["limit"] = (1 << 64) - 1 if step is None else step

    def stop_outside(self, group: int | None, phase: int = 0) -> None:
        """Stop in a workgroup other than this, or when the number of passed barriers differs; None: never."""
        self._block["group"], self._block["phase"] = ANY if group is None else group, phase

    def watch(self, watches: list[tuple[int, int, int, int, int]], *, stopped: WaveView | None) -> None:
        """Stop after changes of these values, each (base, offset, size in bytes, wave or ANY, workgroup or ANY).
        `stopped`: the wave that will continue, from whose current state changes count; None: from the first step
        of the launch.
        """
        self._block["watch_count"] = len(watches)
        self._watches["armed"] = 0
        for index, (base, offset, size_bytes, wave, group) in enumerate(watches):
            self._watches["base"][index], self._watches["offset"][index] = base, offset
            self._watches["size_bytes"][index] = size_bytes
            self._watches["wave"][index], self._watches["group"][index] = wave, group
            if stopped is not None and wave in (ANY, stopped.index) and group in (ANY, stopped.group):
                self._watches["value"][index] = stopped.watched_value(base, offset, size_bytes)
                self._watches["armed"][index] = 1

    def end_waves(self) -> None:
        """Let each wave end at its next instruction. May be called from other threads."""
        self._block["end"] = 1

    def new_findings(self) -> np.ndarray:
        """Return the FINDING records since the last call, and stop again at the next one."""
        assert self._context is not None
        before, now = self._block["findings"], self._context["findings_count"]
        self._block["findings"] = now
        return self._findings[before:now].copy()

    def history(self) -> np.ndarray:
        """Return HISTORY records of the last steps, the last one at the end; at most HISTORY_STEPS."""
        steps = self.steps
        known = min(steps, HISTORY_STEPS)
        return self._history[np.arange(steps - known, steps) & HISTORY_STEPS - 1]
