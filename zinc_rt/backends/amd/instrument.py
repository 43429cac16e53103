"""What a simulated device says that no hardware can, in the words of a backend: kernels, source lines, nodes."""

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
    """`packet_va`: where the packet lies that did it, or launched what did."""

    queue_id: int
    packet_va: int
    finding: Finding


class StoppedWaves:
    """Called while a fence is waited for. A simulated device knows at once that a wave stopped for good, which is
    an incident; hardware leaves it to the deadline. What the device found before is another backend's."""

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
        for each in self._instrument.queue_findings(STOPPED, self._before)[:1]:
            text = f"a wave stopped for good: {each.finding.sentence}"
            self._incidents.append(Incident("lost", text, node=each.finding.node))


STILL_RUNNING = ("still-running",)


class NameParts(Protocol):
    def __call__(self, buffer: Buffer, parts: Iterable[NamedRange], *, alone: bool = False) -> None: ...


class AmdInstrument:
    def __init__(
        self,
        device: SideChannel,
        read: Callable[[str], Zrt],
        node_at: Callable[[int, int], Node | None],
        name_parts: NameParts,
    ) -> None:
        """`read`: a kernel by name, for the lines of its source. `node_at`: by a queue's id and a packet's
        address, whose dispatch it is. `name_parts`: DeviceMemory's. Other backends may share the device."""
        self._device = device
        self._read = read
        self._node_at = node_at
        self._name_parts = name_parts
        self._known: dict[Any, Finding] = {}

    def findings(self) -> list[Finding]:
        """Each once, without what is only a remark about another compiler's code."""
        told = (each for each in self._device.findings() if not is_remark(each.rule, _compiler(each)))
        return list(dict.fromkeys(map(self._finding, told)))

    def count(self, rules: Collection[str]) -> int:
        """How many findings of these rules there are so far."""
        return sum(each.rule in rules for each in self._device.findings())

    def queue_findings(self, rules: Collection[str], since: int = 0) -> list[QueueFinding]:
        """Findings of these rules in order, of every queue of the device, but for the first `since`. Unlike
        `findings` a repeated one comes again, and nodes are looked up now: another queue of the same id may have
        had the same to say."""
        told = [each for each in self._device.findings() if each.rule in rules][since:]
        return [QueueFinding(each.queue_id, each.packet_va, self._made(each)) for each in told]

    def unfinished(self, queue_id: int) -> tuple[str, ...]:
        """Where the waves of that queue stand that have begun and not ended, a sentence each place."""
        before = len(self.queue_findings(STILL_RUNNING))
        self._device.tell_unfinished()
        told = self.queue_findings(STILL_RUNNING)
        mine = [each.finding.sentence for each in told[before:] or told if each.queue_id == queue_id]
        return tuple(mine)

    def consulted(self) -> Sequence[str]:
        return self._device.consulted()[1]

    def set_watchpoint(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        self._device.set_watchpoint(buffer.storage.gpu_va + offset_bytes, size_bytes)

    def watchpoint_hits(self) -> list[StoreEvent]:
        return [
            StoreEvent(
                _named(each.kernel)[0] or each.kernel,
                each.pc,
                each.instruction,
                each.group,
                each.wave,
                each.lane,
                each.value,
            )
            for each in self._device.watchpoint_hits()
        ]

    def discard(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> None:
        self._device.discard(buffer.storage.gpu_va + offset_bytes, size_bytes)

    def hand_over(self, buffer: Buffer, after: AmdExecutable) -> None:
        self._name_parts(buffer, after.placed.get(buffer, ()), alone=True)
        self.discard(buffer, 0, buffer.size_bytes)

    def precompile(self, kernels: Sequence[KernelToCompile]) -> None:
        self._device.precompile(kernels)

    def _finding(self, each: Any) -> Finding:
        if each not in self._known:
            self._known[each] = self._made(each)
        return self._known[each]

    def _made(self, each: Any) -> Finding:
        node, place = self._node_at(each.queue_id, each.packet_va), each.place
        fault = PageFault(*astuple(each.fault)) if each.fault is not None else None
        if place is None:
            return Finding(each.rule, each.sentence, node=node, fault=fault)
        kernel, compiler = _named(place.kernel)
        source = self._source(kernel, compiler, place.pc)
        mark = f"pc 0x{place.pc:x} `"
        return Finding(
            each.rule,
            each.sentence.replace(mark, f"{mark[:-2]} ({source}) `", 1) if source else each.sentence,
            kernel,
            place.pc,
            place.instruction,
            source,
            place.group,
            place.wave,
            place.lanes,
            place.address,
            node,
            fault,
        )

    def _source(self, kernel: str, compiler: str, pc: int) -> str:
        try:
            zrt = self._read(kernel) if kernel else None
        except ZincError:  # a kernel of somebody else's by that name
            return ""
        return zrt.place_at(pc) if zrt is not None and zrt.compiler == compiler else ""


def _compiler(each: Any) -> str:
    """Who made the code that a device's finding is about; "" for our own, and where it is about none."""
    return _named(each.place.kernel)[1] if each.place is not None else ""


def _named(described: str) -> tuple[str, str]:
    """The name and the compiler of a kernel whose first byte an address space calls so, as label_of does; empty
    for anything else."""
    label, _, offset = described.rpartition("+")
    if not label.startswith(KERNEL) or offset != "0x0":
        return "", ""
    name, _, compiler = label.removeprefix(KERNEL).partition(" by ")
    return name, compiler
