"""The findings of one launch on a simulated device. A card has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from zinc_rt.host.arguments import suggest_word
from zinc_rt.host.errors import UsageError
from zinc_rt.host.sanitizer_rules import DEVICE, INITCHECK, MODES, RULES, TOOLS
from zinc_rt.kmd.driver import Driver, SideChannel
from zinc_rt.kmd.transport import DeviceBuffer
from zinc_rt.launching.code_object import CodeImage, CodeKernel
from zinc_rt.launching.executed import ExecutedInstructions, list_executed_instructions
from zinc_rt.launching.finding_groups import FindingGroup, ReportedFinding, group_findings, is_end
from zinc_rt.launching.located import PlacedBuffer, locate_groups
from zinc_rt.launching.values import LaunchBuffer
from zinc_rt.sim.executions import KernelExecution


def choose_tools(mode: str, tools: Sequence[str] | None) -> frozenset[str]:
    """Return the tools of a sanitizer mode, or those named. Raise UsageError for an unknown one."""
    if mode not in MODES:
        raise UsageError(
            f"unknown sanitizer mode {mode}{suggest_word(mode, list(MODES))}: expected {', '.join(MODES)}"
        )
    for tool in tools or ():
        if tool not in TOOLS or tool == DEVICE:
            known = MODES["full"]
            raise UsageError(f"unknown tool {tool}{suggest_word(tool, list(known))}: expected {', '.join(known)}")
    return frozenset(MODES[mode] if tools is None else tools)


class LaunchFindings:
    """Collects the findings of a launch. `tools`: the tools whose findings count; findings that end the launch,
    and findings of the device itself, always count. `placed`: arguments in memory that `watch` is not told of.
    """

    def __init__(
        self, driver: Driver, image: CodeImage, tools: frozenset[str], placed: Sequence[PlacedBuffer] = ()
    ) -> None:
        self._side = driver if isinstance(driver, SideChannel) else None
        self._image, self._tools, self._placed = image, tools, tuple(placed)
        self._buffers: dict[str, tuple[DeviceBuffer, LaunchBuffer]] = {}
        self._before = 0
        self.begin()

    def begin(self) -> None:
        """Clear the findings before a launch runs (again), because the device may have run the kernel before."""
        if self._side is not None:
            self._side.tell_again()
            self._before = len(self._side.findings())
        self._discard_outputs()

    def watch(self, buffers: Mapping[str, tuple[DeviceBuffer, LaunchBuffer]]) -> None:
        """Set the buffers by argument. Outputs that the kernel must not read become uninitialised."""
        self._buffers = dict(buffers)
        self._discard_outputs()

    def _discard_outputs(self) -> None:
        for buffer, value in self._find_only_written():
            if self._side is not None:
                self._side.discard_mapped(buffer.gpu_va, value.array.nbytes)

    def stopped(self) -> str:
        """Return why the launch will never complete, or ""."""
        ends = [finding for finding in self._list_reported() if is_end(finding)]
        if not ends:
            return ""
        last = self.locate(ends[-1:])[0]
        where = f"{last.line}, pc {last.pc:#x}" if last.line else "" if last.pc is None else f"pc {last.pc:#x}"
        what = "; ".join(item for item in (last.access, last.detail) if item)
        code = f" at {where} `{last.instruction}`: {what}" if where else f": {last.first}"
        return f"it stopped: {last.rule}{code}"

    def describe_timeout(self) -> str:
        """Ask for the positions of unfinished waves. Return a description of what the device was doing, or ""."""
        if self._side is None:
            return ""
        self._side.tell_unfinished()
        groups = self.groups()
        if any(group.error for group in groups):
            return ""
        waves = [group for group in groups if group.rule == "still-running"]
        if not waves:
            return ": no wave has started, the device is still compiling the kernel"
        return f": {waves[0].detail}"

    def groups(self) -> tuple[FindingGroup, ...]:
        """Return the current findings of the selected tools."""
        counted = [finding for finding in self._list_reported() if self.counts(finding.rule) or is_end(finding)]
        return self.locate(counted)

    def executions(self) -> Sequence[KernelExecution]:
        """Return the executions that completed since the last call, by kernel."""
        return self._side.executions() if self._side is not None else ()

    def list_executed(self, kernel: CodeKernel) -> ExecutedInstructions | None:
        """Return the instructions that ran since the last call of `executions`, None on a card."""
        outputs = {
            name: (index.gpu_va, index.gpu_va + value.array.nbytes)
            for name, (index, value) in self._buffers.items()
            if value.out and value.array.nbytes
        }
        return list_executed_instructions(self._image, kernel, self.executions(), outputs)

    def find_unwritten(self, kernel: str) -> Iterator[FindingGroup]:
        """Return a finding for each output with elements of which a byte was never stored."""
        for buffer, value in self._find_only_written():
            assert self._side is not None
            name, array = buffer.name, value.array
            bits = np.frombuffer(self._side.initialised(buffer.gpu_va, array.nbytes), np.uint8)
            stored = np.unpackbits(bits, count=array.nbytes, bitorder="little")
            missing = np.flatnonzero(~(stored.reshape(-1, array.itemsize) == 1).all(axis=1))
            if missing.size:
                index = ", ".join(str(axis) for axis in np.unravel_index(missing[0], array.shape))
                text = f"{missing.size} of {array.size} elements were never written; the first is {name}[{index}]"
                yield FindingGroup("unwritten-output", 1, text, False, kernel, tool=INITCHECK)

    def _find_only_written(self) -> list[tuple[DeviceBuffer, LaunchBuffer]]:
        if self._side is None or INITCHECK not in self._tools:
            return []
        return [(index, value) for index, value in self._buffers.values() if not value.read and value.array.size]

    def counts(self, rule: str) -> bool:
        """Return whether findings of this rule count, which those of the selected tools and of the device itself
        do.
        """
        return RULES[rule].tool in self._tools or RULES[rule].tool == DEVICE

    def _list_reported(self) -> Sequence[ReportedFinding]:
        return self._side.findings()[self._before :] if self._side is not None else ()

    def locate(self, findings: Sequence[ReportedFinding]) -> tuple[FindingGroup, ...]:
        """Return the findings in groups, with source lines and accessed elements."""
        watched = [PlacedBuffer(name, index.gpu_va, value.array) for name, (index, value) in self._buffers.items()]
        return locate_groups(group_findings(findings), self._image, (*watched, *self._placed))
