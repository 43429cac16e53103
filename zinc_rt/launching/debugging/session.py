"""A debugged launch: it runs on the simulated device, and stops where the user wants.

The device runs in this process, with the engine that every launch has. Its thread waits inside the compiled kernel
while a wave is stopped. To go back, the launch runs again from its initial memory to an earlier step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.kernels.remarks import is_remark
from zinc_rt.kmd.driver import Driver
from zinc_rt.launching.debugging.expressions import StateReader
from zinc_rt.launching.debugging.goals import (
    Breakpoint,
    FinishWave,
    Goal,
    RunOn,
    StepGroup,
    StepWave,
    ToStep,
)
from zinc_rt.launching.debugging.kernel_code import KernelCode
from zinc_rt.launching.debugging.prepared import PreparedLaunch
from zinc_rt.launching.debugging.stops import DebugStop, StopReason, WatchChange, Watchpoint
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.interfaces import DeviceFinding
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.machine_options import MachineOptions
from zinc_rt.sim.shader.checks.finding_text import WaveFinding
from zinc_rt.sim.shader.emit.debug import STOP_AT_FINDING, STOP_AT_PC, STOP_OF_WATCH
from zinc_rt.sim.shader.run.debugger import (
    HISTORY_STEPS,
    WATCHES,
    DebuggedLaunch,
    WaveDebugger,
    WaveStop,
    WaveView,
)
from zinc_rt.sim.shader.run.group_runner import Stop

FATAL = (Stop.FAULT, Stop.ILLEGAL, Stop.HALT)


class DebugSession:
    """A launch under the debugger (a LaunchDebugger). `interact` is called with the launch stopped before its
    first instruction; its return ends the launch.

    `suppressed` returns whether a finding is accepted. `seconds`: the launch stops after running so long without a
    stop.
    """

    def __init__(
        self,
        interact: Callable[[DebugSession], None],
        *,
        suppressed: Callable[[FindingGroup], bool] = lambda _: False,
        seconds: float | None = None,
    ) -> None:
        self._interact, self._suppressed, self._seconds = interact, suppressed, seconds
        self.break_on_error = False
        self.breakpoints: dict[int, Breakpoint] = {}
        self.watches: dict[int, Watchpoint] = {}
        self.prepared: PreparedLaunch
        self.launch: DebuggedLaunch
        self.code: KernelCode
        self.stop: DebugStop
        self.wave: WaveView | None = None  # the selected one
        self.findings: list[FindingGroup] = []  # at stops and at the end, without those of repeated runs
        self._machine: SimMachine | None = None
        self._driver: SimDriver | None = None
        self._debugger = WaveDebugger(self)
        self._goal: Goal = RunOn()
        self._numbers = 0
        self._pause = ""  # why the launch is to stop at its next instruction
        self._events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._go_on: SimpleQueue[bool] = SimpleQueue()
        self._begun, self._ended = threading.Event(), threading.Event()
        self._worker: threading.Thread | None = None
        self._reported: list[WaveFinding] = []
        self._static: dict[int, list[WaveFinding]] = {}
        self._reported_up_to = -1  # step: findings of earlier steps have stopped the launch already
        self._static_reported: set[int] = set()
        self._saved: tuple[bytes, ...] = ()
        self._wave_stop: WaveStop | None = None

    # --- for launch()

    def open_device(self, chip: str, options: dict[str, Any]) -> Driver:
        try:
            chosen = MachineOptions(chip=chip, **options)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._machine = SimMachine(chosen, debugger=self._debugger)
        self._driver = SimDriver(self._machine)
        return self._driver

    def close_device(self) -> None:
        if self._driver is not None and self._machine is not None:
            self._driver.close_all()
            self._machine.close()

    def run(self, prepared: PreparedLaunch) -> float:
        self.prepared = prepared
        self._saved = prepared.save_regions()
        try:
            self.restart()
            self._interact(self)
        finally:
            self._finish()
        return 0.0

    # --- for the user: where to stop

    def add_breakpoint(self, location: str, pcs: list[int], **more: Any) -> Breakpoint:
        """Add a breakpoint; `more`: other fields of Breakpoint."""
        added = Breakpoint(self._next_number(), location, tuple(pcs), **more)
        if added.condition and self.wave is not None and "*" not in added.condition:  # an address may come later
            self.make_reader().is_true(added.condition)  # raises for one that cannot be evaluated
        self.breakpoints[added.number] = added
        return added

    def add_watch(self, text: str) -> Watchpoint:
        added = Watchpoint(self._next_number(), text, self.make_reader().place(text))
        if len(self.watches) >= WATCHES:
            raise UsageError(f"watch: the maximum of {WATCHES} watches is reached", next="delete one")
        self.watches[added.number] = added
        return added

    def delete(self, number: int) -> None:
        """Delete a breakpoint or a watch."""
        if self.breakpoints.pop(number, None) is None and self.watches.pop(number, None) is None:
            numbers = ", ".join(map(str, (*self.breakpoints, *self.watches))) or "none"
            raise UsageError(f"delete {number}: no such breakpoint or watch; existing numbers: {numbers}")

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # --- for the user: run

    def restart(self) -> DebugStop:
        """Go to the first instruction of the launch."""
        return self.go_to(0, "start")

    def go_to(self, step: int, reason: str = "step") -> DebugStop:
        """Run the launch from its start to a step. Raise UsageError if it ends before."""
        self._reported_up_to = min(self._reported_up_to, step - 1)
        self._static_reported.clear()
        return self._run_to(step, reason)

    def _run_to(self, step: int, reason: str, findings: tuple[FindingGroup, ...] = ()) -> DebugStop:
        self._finish()
        self.prepared.restore(self._saved)
        for item in self.breakpoints.values():
            item.passes = 0
        self._goal = ToStep(step)
        self._start()
        stop = self._wait()
        if stop.wave is None:
            raise UsageError(f"step {step}: the launch ended after {stop.step} instructions")
        if not self._pause:
            self.stop = DebugStop(reason, stop.step, stop.wave, None, findings)
        return self.stop

    def step_back(self, count: int = 1) -> DebugStop:
        """Go back `count` instructions of the selected wave, or of the last wave after the end."""
        history = self._debugger.history()
        steps = self.stop.step
        index = self.wave.index if self.wave is not None else int(history["wave"][-1]) if len(history) else 0
        own = (history["wave"] == index).nonzero()[0]
        if len(own) < count:
            limited = f", in the last {HISTORY_STEPS} steps" if steps > len(history) else ""
            raise UsageError(
                f"back {count}: the wave has executed only {len(own)} instructions so far{limited}",
                next="restart, or goto STEP",
            )
        return self.go_to(steps - len(history) + int(own[-count]), "back")

    def go_on(self) -> DebugStop:
        """Run to the next stop."""
        return self._resume(RunOn())

    def step(self, count: int = 1) -> DebugStop:
        """Run instructions of the selected wave."""
        return self._resume(StepWave(self.require_selected(), self.code, count))

    def step_line(self, count: int = 1) -> DebugStop:
        """Run the selected wave to another source line."""
        wave = self.require_selected()
        line = self.code.line(wave.pc)
        if line is None:
            raise UsageError(f"next: pc {wave.pc:#x} has no source line", next="step runs one instruction")
        return self._resume(StepWave(wave, self.code, count, line))

    def step_group(self) -> DebugStop:
        """Run the workgroup of the selected wave past its next barrier, or to its end."""
        wave = self.require_selected()
        assert self._wave_stop is not None
        return self._resume(StepGroup(wave.group, wave.group_id, self._wave_stop.phase))

    def finish_wave(self) -> DebugStop:
        """Run to the last instruction of the selected wave."""
        wave = self.require_selected()
        if wave.running and wave.pc in self.code.find_ends:
            raise UsageError("finish: this is the last instruction of the wave", next="step or continue")
        return self._resume(FinishWave(wave.index, self.code))

    def pause(self, reason: str = "interrupted") -> None:
        """Stop at the next instruction. May be called from any thread while the launch runs."""
        self._pause = reason
        self._debugger.stop_at_step(0)

    def require_selected(self) -> WaveView:
        if self.wave is None:
            raise UsageError("the launch has ended", next="back goes one instruction back, restart to the start")
        if self.wave.progress == "ended":
            raise UsageError(f"wave {self.wave.number} has ended", next="wave N selects another one")
        return self.wave

    def select(self, number: int) -> WaveView:
        """Select a wave of the stopped wave's workgroup, to show its state and to step it."""
        if self.stop.wave is None:
            raise UsageError("the launch has ended", next="back or restart")
        waves = list(self.stop.wave.waves())
        if not 0 <= number < len(waves):
            raise UsageError(f"wave {number}: the workgroup only has waves 0 to {len(waves) - 1}")
        self.wave = waves[number]
        return self.wave

    def make_reader(self) -> StateReader:
        """Return a reader of the state of the selected wave."""
        return StateReader(self.prepared, self.wave, self.launch.launch.vgprs)

    # --- runs

    def _start(self) -> None:
        self._reported.clear()
        self._begun.clear()
        self._ended.clear()
        self._pause = ""
        self._worker = threading.Thread(target=self._submit, name="launch", daemon=True)
        self._worker.start()

    def _submit(self) -> None:
        def wait_for_end() -> str:  # called by the wait for the fence, which then need not poll
            if not self._begun.wait(0.05):
                return self.prepared.findings.stopped()
            self._ended.wait()
            return ""

        try:
            self.prepared.submit(float("inf"), wait_for_end)
            self._events.put(("fence", None))
        except BaseException as error:
            self._events.put(("error", error))

    def _resume(self, goal: Goal) -> DebugStop:
        if self.stop.wave is None:
            raise UsageError("the launch has ended", next="back goes one instruction back, restart to the start")
        self._goal, self._pause = goal, ""
        self._set_stops(resumed=True)
        self._wave_stop = None
        self._go_on.put(True)
        self._wait()
        return self.stop

    def _set_stops(self, *, resumed: bool) -> None:
        """Set the stops for the goal."""
        debugger = self._debugger
        debugger.stop_at_step(None)
        debugger.stop_outside(None)
        pcs = set(self._goal.prepare(debugger))
        watches = []
        if not self._goal.silent:
            pcs.update(pc for item in self.breakpoints.values() for pc in item.pcs)
            if self.break_on_error:
                pcs.update(self._static)
            watches = list(self.watches.values())
        debugger.set_stops([self.code.offset(pc) for pc in pcs])
        places = [watch.place for watch in watches]
        stopped = self._wave_stop.wave if resumed and self._wave_stop is not None else None
        debugger.watch([(at.base, at.offset, at.size_bytes, at.wave, at.group) for at in places], stopped=stopped)

    def _wait(self) -> DebugStop:
        """Wait until the launch stops or ends."""
        while True:
            try:
                kind, content = self._events.get(timeout=None if self._goal.silent else self._seconds)
            except Empty:
                self.pause(f"no stop within {self._seconds:g} s")
                continue
            except KeyboardInterrupt:
                if self._pause:
                    raise
                self.pause()
                continue
            if kind == "error":
                raise content
            if kind == "stop":
                return self._handle_stop(content)
            if kind == "fence":
                return self._handle_end(None)
            ended: Stop = content
            return self._handle_end(ended)

    def _handle_stop(self, content: tuple[WaveStop, StopReason]) -> DebugStop:
        stop, reason = content
        self._wave_stop, self.wave = stop, stop.wave
        findings = self._group_findings(reason.findings)
        self._note(findings)
        self.stop = DebugStop(reason.text, stop.step, stop.wave, reason.change, findings)
        if reason.after:
            self._reported_up_to = stop.step - 1
            return self._run_to(stop.step - 1, reason.text, findings)
        return self.stop

    def _note(self, findings: tuple[FindingGroup, ...]) -> None:
        self.findings += [finding for finding in findings if finding not in self.findings]

    def _handle_end(self, ended: Stop | None) -> DebugStop:
        if ended is None:  # no launch: the device refused the dispatch
            groups = self.prepared.findings.groups()
            raise InputError(groups[0].first if groups else "the device did not run the launch")
        self._join()
        steps = self._debugger.steps
        self._wave_stop, self.wave = None, None
        self.stop = DebugStop("the launch has ended", steps, None)
        if self._debugger.error is not None:
            raise self._debugger.error
        of_waves = [item for item in self._reported if item.place.group is not None]
        if not self._goal.silent and steps - 1 > self._reported_up_to:
            last = (
                self._select_counted(of_waves[-1:]) if ended in FATAL else self._select_counted(self._new_at_end)
            )
            if last and (ended in FATAL or self.break_on_error):
                self._reported_up_to = steps - 1
                findings = self._group_findings(last)
                self._note(findings)
                return self._run_to(steps - 1, "finding", findings)
        findings = self._list_all_findings()
        if not self._goal.silent:
            self._note(findings)
        how = {Stop.DONE: "the launch has ended", Stop.STUCK: "the launch cannot end: waves wait at a barrier"}
        self.stop = DebugStop(how.get(ended, "the launch has ended with an error"), steps, None, None, findings)
        return self.stop

    def _list_all_findings(self) -> tuple[FindingGroup, ...]:
        findings = self.prepared.findings
        groups = (*findings.groups(), *findings.find_unwritten(self.prepared.kernel.name))
        return tuple(group for group in groups if self._is_counted(group))

    def _finish(self) -> None:
        """End the waves of the current run, and wait for the end of the launch."""
        if self._worker is None:
            return
        if self.wave is not None:
            self.wave, self.stop = None, replace(self.stop, wave=None)  # its memory is going to be reused
        self._debugger.end_waves()
        if self._wave_stop is not None:
            self._wave_stop = None
            self._go_on.put(False)
        self._join()

    def _join(self) -> None:
        assert self._worker is not None
        while self._worker.is_alive():  # a wave may stop once more before it ends
            try:
                kind, _ = self._events.get(timeout=0.05)
            except Empty:
                continue
            if kind == "stop":
                self._go_on.put(False)
        self._worker = None
        while not self._events.empty():
            self._events.get()

    # --- DebugListener: called by the thread that runs the waves

    def begins(self, launch: DebuggedLaunch) -> None:
        self._begun.set()
        self.launch = launch
        if not hasattr(self, "code"):
            self.code = KernelCode(launch.kernel.variant, self.prepared.image, self.prepared.kernel)
        self._static = {}
        for item in self._select_counted(self._reported):
            if item.pc in self.code.instructions:
                self._static.setdefault(item.pc, []).append(item)
        self._new_at_end: list[WaveFinding] = []
        self._set_stops(resumed=False)

    def reported(self, finding: WaveFinding) -> None:
        self._reported.append(finding)

    def ended(self, stop: Stop) -> None:
        try:
            self._new_at_end = self._list_new_findings(self._debugger.steps)
        finally:
            self._ended.set()
            self._events.put(("end", stop))

    def stopped(self, stop: WaveStop) -> bool:
        reason = self._find_reason(stop)
        if not reason.text:
            return True
        self._events.put(("stop", (stop, reason)))
        return self._go_on.get()

    def _find_reason(self, stop: WaveStop) -> StopReason:
        """Return why the wave stops here; "" to continue."""
        new = self._list_new_findings(stop.step) if stop.reasons & STOP_AT_FINDING else []
        if self._pause:
            return StopReason(self._pause)
        reason = StopReason(self._goal.reached(stop))
        if self._goal.silent:
            return reason
        if new and self.break_on_error:
            return StopReason("finding", findings=new, after=True)
        if stop.reasons & STOP_OF_WATCH and stop.watch is not None:
            index, before, now = stop.watch
            watch = list(self.watches.values())[index]
            history = self._debugger.history()[-1:]
            pc = int(history["pc"][0]) - self.launch.entry if len(history) else None
            change = WatchChange(watch.text, watch.place.text(before), watch.place.text(now), pc)
            return StopReason(f"watch {watch.number}", change)
        if stop.reasons & STOP_AT_PC:
            static = self._static.get(stop.wave.pc, []) if self.break_on_error else []
            if static and stop.wave.pc not in self._static_reported:
                self._static_reported.add(stop.wave.pc)
                return StopReason("finding", findings=static)
            reader = StateReader(self.prepared, stop.wave, self.launch.launch.vgprs)
            try:
                hits = [item for item in self.breakpoints.values() if item.is_hit(stop, reader.is_true)]
            except UsageError as error:
                return StopReason(f"condition of a breakpoint: {error.message}")
            if hits:
                return StopReason(f"breakpoint {hits[0].number}")
        return reason

    # --- findings

    def _list_new_findings(self, step: int) -> list[WaveFinding]:
        """Return the findings that the instruction before `step` caused, unless they have stopped the launch."""
        records = self._debugger.new_findings()
        if step - 1 <= self._reported_up_to:
            return []
        return self._select_counted(list(self.launch.texts.format_records(records, len(records))))

    def _select_counted(self, findings: list[WaveFinding]) -> list[WaveFinding]:
        return [
            finding
            for finding in findings
            if any(self._is_counted(group) for group in self._group_findings([finding]))
        ]

    def _group_findings(self, findings: list[WaveFinding]) -> tuple[FindingGroup, ...]:
        of_device = [
            DeviceFinding(RULES[finding.rule].severity, finding.rule, 0, 0, finding.sentence, place=finding.place)
            for finding in findings
        ]
        return self.prepared.findings.locate(of_device)

    def _is_counted(self, group: FindingGroup) -> bool:
        """Return whether a finding comes from one of the selected tools and is neither a remark nor suppressed."""
        if group.error:
            return True
        counts = self.prepared.findings.counts(group.rule)
        return counts and not is_remark(group.rule, self.prepared.image.compiler) and not self._suppressed(group)
