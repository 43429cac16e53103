"""Convert findings of a simulated device to a backend's terms: kernels, source lines, nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

from zinc_rt.backends.amd.device_memory import NamedRange
from zinc_rt.backends.amd.kmd_side import Incident
from zinc_rt.backends.amd.packet_list import AmdExecutable
from zinc_rt.backends.base import Finding, PageFault, StoreEvent
from zinc_rt.exec import Buffer
from zinc_rt.host.errors import ZincError
from zinc_rt.ir.graph import Node
from zinc_rt.kernels.remarks import is_remark
from zinc_rt.kernels.zrt import Zrt
from zinc_rt.kmd.driver import KernelToCompile, SideChannel

STOPPED = ("illegal", "halt")  # rules after which a wave never ends
LOOK_SECONDS = 0.25  # between two looks at what the device found
KERNEL = "kernel "  # as loaded_kernels names what it loads


@dataclass(frozen=True, slots=True)
class QueueFinding:
    """A finding of one queue. `packet_va` is the address of the packet that caused it, or that launched its
    cause.
    """

    queue_id: int
    packet_va: int
    finding: Finding


class StoppedWaves:
    """A check that is called while a fence is waited for. A simulated device detects immediately that a wave
    stopped permanently and reports an incident; on hardware the deadline passes. Earlier findings of the device
    belong to other backends.
    """

    def __init__(self, instrument: AmdInstrument, incidents: list[Incident]) -> None:
        self._instrument = instrument
        self._incidents = incidents
        self._before = instrument.count(STOPPED)
        self._look_at = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        for queue_finding in self._instrument.queue_findings(STOPPED, self._before)[:1]:
            text = f"a wave stopped for good: {queue_finding.finding.sentence}"
            self._incidents.append(Incident("lost", text, node=queue_finding.finding.node))


UNWRITTEN = "uninitialised-memory"
STILL_RUNNING = ("still-running",)


class NameParts(Protocol):
    def __call__(self, buffer: Buffer, parts: Iterable[NamedRange], *, alone: bool = False) -> None: ...


class AmdInstrument:
    def __init__(
        self,
        device: SideChannel,
        read: Callable[[str], Zrt],
        node_at: Callable[[int, int], tuple[Node, AmdExecutable] | None],
        name_parts: NameParts,
    ) -> None:
        """Attach to `device`, which other backends may share. `read` returns a kernel by name, for its source
        lines. `node_at` returns the node of a dispatch, and its executable, by queue id and packet address.
        `name_parts` is
        DeviceMemory's. Earlier findings of the device do not belong to this backend, and are reported again if
        they recur.
        """
        device.tell_again()
        self._before = len(device.findings())
        self._device = device
        self._read = read
        self._node_at = node_at
        self._name_parts = name_parts
        self._known: dict[Any, Finding] = {}

    def findings(self) -> list[Finding]:
        """Return every distinct finding since this backend was opened, without remarks about code of other
        compilers.
        """
        fresh = self._device.findings()[self._before :]
        reported = (item for item in fresh if not is_remark(item.rule, _find_compiler(item)))
        return list(dict.fromkeys(map(self._convert_finding, reported)))

    def counters(self) -> Sequence[dict[str, Any]]:
        """Return the device's counters of each kernel: see SideChannel.counters."""
        return self._device.counters()

    def count(self, rules: Collection[str]) -> int:
        """Return the current number of findings of these rules."""
        return sum(finding.rule in rules for finding in self._device.findings())

    def queue_findings(self, rules: Collection[str], since: int = 0) -> list[QueueFinding]:
        """Return findings of these rules in order, for every queue of the device, skipping the first `since`
        findings. Unlike `findings`, repeated findings are included, and nodes are looked up now, because another
        queue with the same id may have had the same finding."""
        findings = [finding for finding in self._device.findings() if finding.rule in rules][since:]
        return [
            QueueFinding(finding.queue_id, finding.packet_va, self._locate_finding(finding))
            for finding in findings
        ]

    def describe_unfinished_waves(self, queue_id: int) -> tuple[str, ...]:
        """Return the positions of that queue's unfinished waves, one sentence for each position."""
        before = len(self.queue_findings(STILL_RUNNING))
        self._device.tell_unfinished()
        findings = self.queue_findings(STILL_RUNNING)
        sentences = [
            finding.finding.sentence for finding in findings[before:] or findings if finding.queue_id == queue_id
        ]
        return tuple(sentences)

    def consulted(self) -> Sequence[str]:
        return self._device.consulted()[1]

    def set_watchpoint(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        self._device.set_watchpoint(buffer.storage.gpu_va + offset_bytes, size_bytes)

    def watchpoint_hits(self) -> list[StoreEvent]:
        return [
            StoreEvent(
                _parse_label(watchpoint_hit.kernel)[0] or watchpoint_hit.kernel,
                watchpoint_hit.pc,
                watchpoint_hit.instruction,
                watchpoint_hit.group,
                watchpoint_hit.wave,
                watchpoint_hit.lane,
                watchpoint_hit.value,
            )
            for watchpoint_hit in self._device.watchpoint_hits()
        ]

    def discard(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        self._device.discard(buffer.storage.gpu_va + offset_bytes, size_bytes)

    def hand_over(self, buffer: Buffer, after: AmdExecutable) -> None:
        self._name_parts(buffer, after.placed.get(buffer, ()), alone=True)
        self.discard(buffer, 0, buffer.size_bytes)

    def precompile(self, kernels: Sequence[KernelToCompile]) -> None:
        self._device.precompile(kernels)

    def _convert_finding(self, finding: Any) -> Finding:
        if finding not in self._known:
            self._known[finding] = self._locate_finding(finding)
        return self._known[finding]

    def _locate_finding(self, finding: Any) -> Finding:
        dispatch, location = self._node_at(finding.queue_id, finding.packet_va), finding.place
        node = dispatch[0] if dispatch is not None else None
        fault = PageFault(*astuple(finding.fault)) if finding.fault is not None else None
        if location is None:
            return Finding(finding.rule, finding.sentence, node=node, fault=fault)
        kernel, compiler = _parse_label(location.kernel)
        source = self._find_source(kernel, compiler, location.pc)
        mark = f"pc 0x{location.pc:x} `"
        sentence = finding.sentence.replace(mark, f"{mark[:-2]} ({source}) `", 1) if source else finding.sentence
        if finding.rule == UNWRITTEN and dispatch is not None and location.address is not None:
            sentence += describe_writer(*dispatch, location.address)
        return Finding(
            finding.rule,
            sentence,
            kernel,
            location.pc,
            location.instruction,
            source,
            location.group,
            location.wave,
            location.lanes,
            location.address,
            node,
            fault,
        )

    def _find_source(self, kernel: str, compiler: str, pc: int) -> str:
        try:
            zrt = self._read(kernel) if kernel else None
        except ZincError:  # a kernel of somebody else's by that name
            return ""
        return zrt.find_place(pc) if zrt is not None and zrt.compiler == compiler else ""


def describe_writer(node: Node, executable: AmdExecutable, address: int) -> str:
    """Return which operand holds an address that nothing wrote, and the node that writes it; empty for none."""
    operand = executable.find_operand(node, address)
    if not operand or operand in node.outputs:
        return ""
    writer = executable.find_writer(node, operand)
    return f"; operand {operand}" + (f", which node {writer.label} did not write there" if writer else "")


def _find_compiler(finding: Any) -> str:
    """Return the compiler of the code that a finding is about; "" for our own code, or if it is not about code."""
    return _parse_label(finding.place.kernel)[1] if finding.place is not None else ""


def _parse_label(described: str) -> tuple[str, str]:
    """Return the name and the compiler of a kernel from the label of its first byte, as made by label_of; empty
    for any other label."""
    label, _, offset = described.rpartition("+")
    if not label.startswith(KERNEL) or offset != "0x0":
        return "", ""
    name, _, compiler = label.removeprefix(KERNEL).partition(" by ")
    return name, compiler
