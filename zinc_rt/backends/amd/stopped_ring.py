"""Examine a stalled ring: where it stopped, in which packet, and the most likely cause."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zinc_rt.backends.amd.addresses import AddressMap
from zinc_rt.backends.amd.hang import FaultState, FenceState, RingState, SubmissionState
from zinc_rt.backends.amd.packet_list import IndirectCode
from zinc_rt.backends.amd.page_fault import SimulatedFault
from zinc_rt.backends.amd.ring import AmdRing, ReadyDwords, Submission
from zinc_rt.ir.graph import Node
from zinc_rt.kmd.syscalls import PAGE_BYTES
from zinc_rt.pm4.decode import BadPacket, DecodedPacket, decode_stream
from zinc_rt.pm4.disassemble import describe_dwords
from zinc_rt.pm4.disassemble import disassemble_lines as disassembled
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint import errors, lint

SHOWN_BEFORE = 2  # submissions shown before the one that holds rptr
SHOWN_DW = 256  # and dwords behind rptr
IB_SHOWN_LINES = 400


@dataclass(frozen=True, slots=True)
class RingWindow:
    """A part of the ring that begins at a submission: `words` from `start_dw` on."""

    start_dw: int
    words: Sequence[int]
    text: str
    last_packet: str


def read_ring_state(ring: AmdRing) -> RingState:
    queue = ring.queue
    return RingState(
        ring.name,
        queue.kind,
        queue.queue_id,
        queue.ring.gpu_va,
        ring.ring_dw,
        ring.wptr_dw,
        ctypes.c_uint64.from_address(queue.wptr.host.address).value,
        ring.rptr_dw,
        ring.consumed_dw,
    )


def read_fence_state(ring: AmdRing) -> FenceState:
    line = ring.timeline
    seen = line.last_good if line.error is not None else line.seen
    return FenceState(line.gpu_va, line.memory(), seen, line.submitted, line.read_guard())


def list_submission_states(ring: AmdRing) -> tuple[SubmissionState, ...]:
    seen = read_fence_state(ring).seen
    return tuple(_read_submission_state(submission, seen, ring.consumed_dw) for submission in ring.submissions())


def _read_submission_state(submission: Submission, seen: int, consumed_dw: int) -> SubmissionState:
    if 0 < submission.fence_value <= seen:
        state = "finished"
    elif submission.end_dw <= consumed_dw:
        state = "fetched"
    elif submission.start_dw < consumed_dw:
        state = "being fetched"
    else:
        state = "not fetched"
    ib = submission.ready.ib
    called = (ib.name, ib.gpu_va, len(ib.words)) if isinstance(ib, IndirectCode) else ("", 0, 0)
    return SubmissionState(
        submission.ready.name, submission.start_dw, submission.end_dw, submission.fence_value, state, *called
    )


def find_stuck_submission(ring: AmdRing) -> Submission | None:
    """Return the oldest unfinished submission, which blocks all later ones."""
    seen = read_fence_state(ring).seen
    for submission in ring.submissions():
        finished = (
            submission.fence_value <= seen if submission.fence_value else submission.end_dw <= ring.consumed_dw
        )
        if not finished:
            return submission
    return None


def read_window(ring: AmdRing, addresses: AddressMap) -> RingWindow:
    """Return the window around rptr. It begins at a known packet boundary."""
    known = [
        submission
        for submission in ring.submissions()
        if submission.start_dw >= max(0, ring.wptr_dw - ring.ring_dw)
    ]
    if not known:
        return RingWindow(ring.wptr_dw, (), "", "nothing was submitted")
    rptr = ring.consumed_dw
    holding = next((i for i, item in enumerate(known) if item.end_dw > rptr), len(known) - 1)
    start = known[max(0, holding - SHOWN_BEFORE)].start_dw
    end = min(ring.wptr_dw, max(rptr, start) + SHOWN_DW)
    words = ring.words(start, end)
    items = decode_stream(words, ring.generation, keep_going=True)
    rows = []
    for line in disassembled(words, ring.generation, symbol=addresses.name):
        location = start + line.offset
        mark = "rptr>" if location == rptr else "     "
        indent = "" if line.first else "  "
        rows.append(f"{mark} 0x{location % ring.ring_dw:05x}  {line.word:08x}  {indent}{line.text}".rstrip())
    if rptr == end:
        rows.append(f"rptr> 0x{rptr % ring.ring_dw:05x}  " + ("(= wptr)" if end == ring.wptr_dw else ""))
    return RingWindow(start, words, "\n".join(rows), _name_packets(items, rptr - start, ring, addresses))


def _name_packets(items: Sequence[DecodedPacket], rptr: int, ring: AmdRing, addresses: AddressMap) -> str:
    """Name the packets on both sides of rptr, because hardware stops rptr at a bad packet, inside it or after
    it.
    """
    before = [item for item in items if item.offset < rptr]
    offset = next((item for item in items if item.offset == rptr), None)
    parts = []
    if before:
        whole = before[-1].offset + before[-1].length <= rptr
        parts.append(f"{'last read' if whole else 'rptr is inside'}: {format_packet(before[-1], ring, addresses)}")
    if offset is not None:
        parts.append(f"next: {format_packet(offset, ring, addresses)}")
    return "; ".join(parts) or "none read"


def format_packet(item: DecodedPacket, ring: AmdRing, addresses: AddressMap) -> str:
    """Format a packet with its nonzero fields."""
    texts = describe_dwords(item, ring.generation, addresses.name)
    words = [word for index in sorted(texts) for word in texts[index].split()]
    return " ".join(word for word in words if not word.endswith(("=0", "(0)")))


def format_ib(ib: IndirectCode, words: Sequence[int], generation: Generation, addresses: AddressMap) -> str:
    """Disassemble the buffer as it is in memory now. A deviation from the built content is reported first."""
    head = f"{ib.name}, {len(words)} dwords at {ib.gpu_va:#x}"
    changed = [index for index, (now, built) in enumerate(zip(words, ib.words, strict=False)) if now != built]
    if changed:
        first = changed[0]
        head += (
            f"\nOVERWRITTEN: {len(changed)} dwords differ from what was built, first {first:#06x}: "
            f"{ib.words[first]:08x} became {words[first]:08x}"
        )
    rows: list[str] = []
    for line in disassembled(words, generation, symbol=addresses.name):
        if len(rows) == IB_SHOWN_LINES:
            rows.append(f"… {len(words) - line.offset} dwords more in ib.bin")
            break
        rows.append(f"0x{line.offset:04x}  {line.word:08x}  {'' if line.first else '  '}{line.text}".rstrip())
    return "\n".join([head, *rows])


def read_ib(ib: IndirectCode) -> tuple[int, ...]:
    """Return the buffer's dwords, from memory if the host can read it, else as built."""
    if ib.buffer.mapping is None:
        return ib.words
    start = ib.offset_bytes
    return tuple(ib.buffer.mapping.view[start : start + 4 * len(ib.words)].cast("I"))


def find_illegal_packets(
    shown: RingWindow, ib: tuple[int, ...], ring: AmdRing, addresses: AddressMap
) -> tuple[str, ...]:
    """Return linter errors in the ring's window and in the indirect buffer."""
    illegal_packets = []
    for where, words, is_ib in (("ring", shown.words, False), ("indirect buffer", ib, True)):
        refused = lint(words, ring.generation, queue=ring.lint_queue, is_ib=is_ib, mapped=addresses.check_range)
        for error in errors(refused):
            offset = error.offset if is_ib else (shown.start_dw + error.offset) % ring.ring_dw
            illegal_packets.append(f"{where} {offset:#06x}: {error.rule}: {error.text}")
    return tuple(illegal_packets)


FindFault = Callable[[int, int], tuple[SimulatedFault, Node | None] | None]
"""(queue id, address of the page): what a simulated device saw, and of which node it was."""


def describe_faults(
    ring: AmdRing, addresses: AddressMap, find: FindFault | None = None
) -> tuple[tuple[FaultState, ...], Node | None]:
    """Describe each fault: the name of its address, and the submissions in flight whose packets name that page, or
    at least the allocation. Details from a simulated device and the node of the first submission are included.
    Addresses that a kernel computes itself do not occur in packets."""
    states, node = [], None
    for incident in ring.side.incidents:
        if incident.fault is None:
            continue
        va = incident.fault.va
        region = addresses.at(va) or addresses.find_region_below(va)
        named = _find_submissions(ring, va, PAGE_BYTES)
        if not named and region is not None:
            named = _find_submissions(ring, region.va, region.size_bytes)
        fault, its_node = (find(ring.queue.queue_id, va) if find is not None else None) or (None, None)
        node = node or its_node
        states.append(FaultState(incident.text, va, addresses.describe(va), named, fault))
    return tuple(states), node


def _find_submissions(ring: AmdRing, va: int, size_bytes: int) -> tuple[str, ...]:
    """Return unfinished submissions whose packets name these bytes."""
    seen = read_fence_state(ring).seen
    running = [submission for submission in ring.submissions() if not 0 < submission.fence_value <= seen]
    distinct = {item.ready: None for item in running}  # a replayed graph is one object, however often it runs
    named = {ready for ready in distinct if _has_address(ready, ring, va, size_bytes)}
    return tuple(item.ready.name for item in running if item.ready in named)


def _has_address(ready: ReadyDwords, ring: AmdRing, va: int, size_bytes: int) -> bool:
    streams: list[Sequence[int]] = [list(ready.words)]
    if isinstance(ready.ib, IndirectCode):
        streams.append(ready.ib.words)
    return any(
        access.va < va + size_bytes and va < access.va + access.size_bytes
        for words in streams
        for item in decode_stream(words, ring.generation)
        if not isinstance(item.packet, BadPacket)
        for access in item.packet.accesses()
    )


def find_likely_cause(ring: AmdRing, faults: tuple[FaultState, ...], refused: tuple[str, ...]) -> str:
    """Return the most likely reason in one sentence. Certain reasons precede guesses."""
    if faults:
        first = faults[0]
        by = f", named by {', '.join(first.submissions)}" if first.submissions else ""
        seen = f"; the simulated device saw: {first.seen.format_summary}" if first.seen is not None else ""
        return f"{first.text}: {first.allocation}{by}{seen}"
    if ring.side.incidents:
        return ring.side.incidents[0].text
    line = ring.timeline
    guard = line.read_guard()
    if guard is not None:
        return guard
    if miscounted := _find_wrong_advance(ring):
        return miscounted
    if refused:
        return f"an illegal packet stops the queue: {refused[0]}"
    in_memory = ctypes.c_uint64.from_address(ring.queue.wptr.host.address).value
    if in_memory != ring.wptr_dw:
        return f"wptr's memory holds {in_memory}, {ring.wptr_dw} was stored: something else writes there"
    if not ring.rptr_is_sane:
        return f"rptr's memory holds {ring.rptr_dw:#x}, which is past wptr: something else writes there"
    stuck = find_stuck_submission(ring)
    if stuck is None:
        return "everything submitted has finished"
    name = stuck.ready.name
    if ring.consumed_dw <= stuck.start_dw:
        return (
            f"rptr stands at the beginning of {name}: its first packet does not end, the doorbell did not arrive, "
            "or the queue is not scheduled"
        )
    if ring.consumed_dw < ring.wptr_dw:
        return f"the command processor stopped in {name}"
    return f"all was fetched, but {name} does not finish, or its RELEASE_MEM does not reach the fence"


def _find_wrong_advance(ring: AmdRing) -> str:
    """Find a submission whose wptr advance differs from its number of dwords: the dwords between were never
    written."""
    for submission in ring.submissions():
        moved, dwords = submission.end_dw - submission.start_dw, submission.ready.count_dw
        if moved != dwords:
            unit = "; it counts bytes where dwords are meant" if moved == 4 * dwords else ""
            return f"wptr moved by {moved} for {submission.ready.name}, which has {dwords} dwords{unit}"
    return ""
