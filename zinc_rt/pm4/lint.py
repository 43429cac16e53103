"""The linter: finds illegal packets in a dword stream before it is submitted. Findings are data; nothing here
raises.

The linter follows the CP: it stops at the first packet that would stop the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zinc_rt.pm4.decode import BadPacket, DecodedPacket, decode_stream
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint_dispatches import lint_dispatches
from zinc_rt.pm4.lint_rules import RULES, Complaint, Mapped, QueueInterface, Severity, StreamContext
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import CondExec, Nop, PredExec, ProtectedFenceSignal, ReleaseMem


@dataclass(frozen=True, slots=True)
class PacketFinding:
    """A rule violation at a dword offset of the stream: the rule, the actual and expected values, and advice."""

    offset: int
    rule: str
    severity: Severity
    text: str
    next: str


def lint(
    words: Sequence[int],
    generation: Generation,
    *,
    queue: QueueInterface = "kfd",
    is_ib: bool = False,
    mapped: Mapped | None = None,
) -> list[PacketFinding]:
    """Return all findings of the stream, in order. `is_ib`: the stream is the content of an IB, not of the
    ring.
    """
    context = StreamContext(generation, queue, is_ib, mapped)
    items = decode_stream(words, generation)
    ends = {item.offset + item.length for item in items}
    findings: list[PacketFinding] = []
    for position, item in enumerate(items):
        complaints = list(_lint_packet(item.packet, context))
        if isinstance(item.packet, CondExec | PredExec):
            complaints += _skip(item, item.packet.exec_count, ends, len(words))
        elif isinstance(item.packet, ProtectedFenceSignal):
            complaints += _check_fence_order(items, position, context)
        for dword, rule, text, advice in complaints:
            findings.append(PacketFinding(item.offset + dword, rule, RULES[rule].severity, text, advice))
    for item, (dword, rule, text, advice) in lint_dispatches(items, generation):
        findings.append(PacketFinding(item.offset + dword, rule, RULES[rule].severity, text, advice))
    return sorted(findings, key=lambda finding: finding.offset)


def errors(findings: Sequence[PacketFinding]) -> list[PacketFinding]:
    """Return the findings that forbid submitting the stream to a queue."""
    return [finding for finding in findings if finding.severity == "error"]


# --- checks of every packet --------------------------------------------------------------------------------------


def _lint_packet(packet: Packet | BadPacket, context: StreamContext) -> Iterator[Complaint]:
    if isinstance(packet, BadPacket):
        yield 0, packet.why, packet.text, _HEADER_ADVICE[packet.why]
        return
    if packet.reserved:
        yield from _check_reserved(packet)
    yield from _check_values(packet, context.generation)
    yield from _check_memory(packet, context)
    if packet.PRIVILEGED:
        yield 0, "privileged", f"{packet.NAME} is accepted by the driver's queues only", "remove it"
    yield from packet.lint(context)


_HEADER_ADVICE = {
    "type": "every compute packet starts with a type-3 header; pad with 0xffff1000",
    "opcode": "check that the count of the preceding packet matches its length",
    "other-engine": "use compute packets only (docs/pm4.md)",
    "generation": "build the stream for the chip that runs it (--arch)",
    "count": "set count to the number of dwords after the header, minus 1",
    "truncated": "write the whole packet before the write pointer moves",
}


def _check_reserved(packet: Packet) -> Iterator[Complaint]:
    for dword, extra in packet.reserved:
        if dword:
            hint = packet.RESERVED_HINTS.get(dword, "write 0")
            yield dword, "reserved-bits", f"{packet.NAME} dword {dword}: reserved bits {extra:#010x} are set", hint
            continue
        if extra & 1:
            yield 0, "predicate", f"{packet.NAME}: header bit 0 (predicate) is set", "write 0 in header bits 7:0"
        if extra & 2:
            yield (
                0,
                "shader-type",
                f"{packet.NAME}: header bit 1 (shader type) is set",
                "write 0 in header bits 7:0",
            )
        if extra & 0xFC:
            text = f"{packet.NAME}: header bits {extra & 0xFC:#04x} are set"
            yield 0, "reserved-bits", text, "write 0 in header bits 7:0"


def _check_values(packet: Packet, generation: Generation) -> Iterator[Complaint]:
    for field in packet.FIELDS:
        names = field.place.values(generation)
        if names is None:
            continue
        value = getattr(packet, field.name)
        if value in names:
            continue
        rule = "value" if field.place.complete else "value-unverified"
        text = f"{packet.NAME}.{field.label(generation)} = {value:#x} is not defined on {generation.name.lower()}"
        known = ", ".join(f"{key}={name}" for key, name in list(names.items())[:8])
        yield field.place.spans[0].dword, rule, text, f"defined values: {known}"


def _check_memory(packet: Packet, context: StreamContext) -> Iterator[Complaint]:
    for access in packet.accesses():
        where = f"{packet.NAME}: {access.kind} of {access.size_bytes} bytes at {access.va:#x}"
        if access.va % access.align:
            text = f"{where}, expected a multiple of {access.align}"
            yield access.dword, "alignment", text, f"the hardware would access {access.va & -access.align:#x}"
        if not is_canonical(access.va) or not is_canonical(access.va + max(access.size_bytes, 1) - 1):
            yield (
                access.dword,
                "address-range",
                f"{where} cannot be mapped",
                "check that the address is set and in bytes",
            )
        elif context.mapped is not None:
            reason = context.mapped(access.va, access.size_bytes, access.kind)
            if reason is not None:
                yield access.dword, "unmapped", f"{where}: {reason}", "map the buffer before submitting"


def is_canonical(va: int) -> bool:
    """Return whether a VA is canonical and above the first 64 KiB, which Linux never maps."""
    return 0x10000 <= va < 1 << 47 or 0xFFFF800000000000 <= va < 1 << 64


# --- packets and their neighbours ---------------------------------------------------------------------------


def _skip(item: DecodedPacket, count: int, ends: set[int], size: int) -> Iterator[Complaint]:
    target = item.offset + item.length + count
    if target > size:
        text = f"skips {count} dwords, but only {size - item.offset - item.length} follow"
        yield item.length - 1, "skip-range", text, "skip whole packets"
    elif target not in ends:
        text = f"skipping {count} dwords ends at {target:#06x}, inside a packet"
        yield item.length - 1, "skip-range", text, "skip whole packets"


def _check_fence_order(
    items: Sequence[DecodedPacket], position: int, context: StreamContext
) -> Iterator[Complaint]:
    if context.queue != "userq":
        return
    after = [item for item in items[position + 1 :] if type(item.packet) is not Nop]
    if after:
        text = "PROTECTED_FENCE_SIGNAL is not the last packet"
        yield 0, "fence-order", text, "move it to the end: the driver's fence does not cover the packets after it"
    if position == 0 or type(items[position - 1].packet) is not ReleaseMem:
        text = "PROTECTED_FENCE_SIGNAL without a RELEASE_MEM directly before it"
        yield 0, "fence-order", text, "put a RELEASE_MEM before it: whether it waits for dispatches is unverified"
