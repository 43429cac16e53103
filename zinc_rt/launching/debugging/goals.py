"""Where a launch stops: breakpoints, watches, and the goals of commands that let it run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from zinc_rt.launching.debugging.kernel_code import KernelCode, SourceLine
from zinc_rt.sim.shader.emit.debug import ANY
from zinc_rt.sim.shader.run.debugger import WaveDebugger, WaveStop, WaveView

Triple = tuple[int, int, int]


@dataclass(slots=True)
class Breakpoint:
    """A breakpoint. `location`: FILE:LINE, "" for a pc. `pcs`: where it stops, in `group` and `wave` (of its
    workgroup) or any, if `condition` (see expressions.py, "": none) is true. `after`: number of passes without a
    stop.
    """

    number: int
    location: str
    pcs: tuple[int, ...]
    group: Triple | None = None
    wave: int | None = None
    condition: str = ""
    after: int = 0
    passes: int = 0  # in the run so far

    def is_hit(self, stop: WaveStop, holds: Callable[[str], bool]) -> bool:
        """Return whether it stops this wave; if not, count the pass."""
        wave = stop.wave
        if wave.pc not in self.pcs or (self.wave is not None and wave.number != self.wave):
            return False
        if (self.group is not None and wave.group_id != self.group) or (
            self.condition and not holds(self.condition)
        ):
            return False
        self.passes += 1
        return self.passes > self.after

    def __str__(self) -> str:
        pcs = " and ".join(f"pc {pc:#x}" for pc in self.pcs)
        parts = [f"breakpoint {self.number}: " + (f"{self.location}, {pcs}" if self.location else pcs)]
        if self.group is not None:
            parts.append(f"group {','.join(map(str, self.group))}")
        if self.wave is not None:
            parts.append(f"wave {self.wave}")
        if self.condition:
            parts.append(f"if {self.condition}")
        if self.after:
            parts.append(f"after {self.after} pass{'es' if self.after > 1 else ''}")
        return ", ".join(parts)


class Goal(Protocol):
    """The goal of a command. `silent`: breakpoints, watches and findings before it do not stop."""

    silent: bool

    def prepare(self, debugger: WaveDebugger) -> list[int]:
        """Set the stops of the goal. Return pcs to stop at besides."""

    def reached(self, stop: WaveStop) -> str:
        """Return why the launch stops here, or "" to continue."""


@dataclass
class RunOn:
    """Run to a breakpoint, or the end."""

    silent: bool = False

    def prepare(self, debugger: WaveDebugger) -> list[int]:
        return []

    def reached(self, stop: WaveStop) -> str:
        return ""


@dataclass
class ToStep:
    """Run to a step of the launch, as before."""

    step: int
    silent: bool = True

    def prepare(self, debugger: WaveDebugger) -> list[int]:
        debugger.stop_at_step(self.step)
        return []

    def reached(self, stop: WaveStop) -> str:
        return "step" if stop.step >= self.step else ""


@dataclass
class StepWave:
    """Run `count` instructions of a wave, or run while `line` is the line of its next instruction. Ends with the
    wave.
    """

    wave: WaveView
    code: KernelCode
    count: int
    line: SourceLine | None = None
    silent: bool = False
    _name: str = field(init=False)
    _index: int = field(init=False)
    _ends: bool = field(init=False)  # the wave's next instruction is its last

    def __post_init__(self) -> None:
        self._index = self.wave.index
        self._name = f"wave {self.wave.number} of workgroup {self.wave.group_id} has ended"
        self._ends = self.wave.running and self.wave.pc in self.code.find_ends
        if not self.wave.running:
            self.count += 1  # it stops before its next instruction first

    def prepare(self, debugger: WaveDebugger) -> list[int]:
        debugger.stop_at_step(0, ANY if self._ends else self._index)
        self._debugger = debugger
        return []

    def reached(self, stop: WaveStop) -> str:
        if stop.wave.index != self._index:
            return self._name if self._ends else ""
        if self.line is None or self.code.line(stop.wave.pc) not in (None, self.line):
            self.count -= 1
            self.line = self.code.line(stop.wave.pc) if self.line is not None else None
            if self.count <= 0:
                return "step"
        if stop.wave.pc in self.code.find_ends:
            self._ends = True
            self._debugger.stop_at_step(0)
        return ""


@dataclass
class StepGroup:
    """Run until the workgroup has passed its next barrier, or has ended."""

    group: int
    group_id: Triple
    phase: int
    silent: bool = False

    def prepare(self, debugger: WaveDebugger) -> list[int]:
        debugger.stop_outside(self.group, self.phase)
        return []

    def reached(self, stop: WaveStop) -> str:
        if stop.wave.group != self.group:
            return f"workgroup {self.group_id} has ended"
        return "all waves have arrived at the barrier" if stop.phase != self.phase else ""


@dataclass
class FinishWave:
    """Run to the last instruction of a wave."""

    index: int
    code: KernelCode
    silent: bool = False

    def prepare(self, debugger: WaveDebugger) -> list[int]:
        return self.code.find_ends

    def reached(self, stop: WaveStop) -> str:
        return "end of the wave" if stop.wave.index == self.index and stop.wave.pc in self.code.find_ends else ""
