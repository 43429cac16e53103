"""Find what is illegal in a dword stream before a queue sees it. Findings are data; nothing here raises.

The linter reads as the CP would: it stops at the first packet that would stop the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from zinc_rt.pm4 import gcr
from zinc_rt.pm4.accesses import accesses, canonical, register_space, register_writes
from zinc_rt.pm4.bits import mask_of
from zinc_rt.pm4.decode import Bad, Item, decode_stream
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.layout import Packet
from zinc_rt.pm4.packets import (
    AcquireMem,
    CleanerShader,
    CondExec,
    DispatchDirect,
    DispatchIndirect,
    DmaData,
    EventWrite,
    FenceWaitMulti,
    IndirectBuffer,
    IndirectBufferPasid,
    InvalidateTlbs,
    Nop,
    PredExec,
    ProtectedFenceSignal,
    ReleaseMem,
    SetConfigReg,
    SetQueueReg,
    SetShRegPairsPacked,
    SetShRegPairsPackedN,
)
from zinc_rt.pm4.packets.sync import CS_PARTIAL_FLUSH
from zinc_rt.pm4.packets.userq import FENCE_WAIT_MAX
from zinc_rt.pm4.registers import DISPATCH_INITIATOR, PGM_RSRC1, SH, USER_DATA_COUNT, Sh, register_at
from zinc_rt.pm4.rules import RULES, Severity

Queue = Literal["kfd", "userq"]
Mapped = Callable[[int, int, str], str | None]
"""(va, size_bytes, "read" | "write" | "execute") -> why that is not possible, None where it is."""

SAMPLE_PIPELINESTAT = 0x1E
IB_ALIGN_BYTES, IB_ALIGN_DWORDS = 32, 8
_RSRC1, _RSRC2 = SH.base + Sh.PGM_RSRC1, SH.base + Sh.PGM_RSRC2
_USER_DATA = SH.base + Sh.USER_DATA_0
_PRIVILEGED = (SetConfigReg, SetQueueReg, InvalidateTlbs, IndirectBufferPasid, CleanerShader)

Complaint = tuple[int, str, str, str]  # dword in the packet, rule, what was seen, what to do


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong at a dword offset of the stream: the rule broken, what was seen and wanted, what to do."""

    offset: int
    rule: str
    severity: Severity
    text: str
    next: str


@dataclass(frozen=True, slots=True)
class Context:
    """Where the stream would run."""

    generation: Generation
    queue: Queue
    is_ib: bool
    mapped: Mapped | None


def lint(
    words: Sequence[int],
    generation: Generation,
    *,
    queue: Queue = "kfd",
    is_ib: bool = False,
    mapped: Mapped | None = None,
) -> list[Finding]:
    """Everything wrong with the stream, in order. `is_ib`: it is the content of an IB, not of the ring."""
    context = Context(generation, queue, is_ib, mapped)
    items = decode_stream(words, generation)
    ends = {item.offset + item.length for item in items}
    found: list[Finding] = []
    for position, item in enumerate(items):
        complaints = list(_packet(item.packet, context))
        if isinstance(item.packet, CondExec | PredExec):
            complaints += _skip(item, item.packet.exec_count, ends, len(words))
        elif isinstance(item.packet, ProtectedFenceSignal):
            complaints += _fence_order(items, position, context)
        for dword, rule, text, advice in complaints:
            found.append(Finding(item.offset + dword, rule, RULES[rule].severity, text, advice))
    return sorted(found, key=lambda finding: finding.offset)


def errors(findings: Sequence[Finding]) -> list[Finding]:
    """Only what must not reach a queue."""
    return [finding for finding in findings if finding.severity == "error"]


# --- what every packet is checked for ---------------------------------------------------------------------------


def _packet(packet: Packet | Bad, context: Context) -> Iterator[Complaint]:
    if isinstance(packet, Bad):
        yield 0, packet.why, packet.text, _HEADER_ADVICE[packet.why]
        return
    if packet.reserved:
        yield from _reserved(packet)
    yield from _values(packet, context.generation)
    yield from _memory(packet, context)
    if register_space(packet) is not None:
        yield from _registers(packet, context.generation)
    if isinstance(packet, _PRIVILEGED):
        yield 0, "privileged", f"{packet.NAME} is for the kernel's own queues", "leave it out"
    special = _SPECIAL.get(type(packet))
    if special is not None:
        yield from special(packet, context)


_HEADER_ADVICE = {
    "type": "every compute packet starts with a type-3 header; pad with 0xffff1000",
    "opcode": "is the packet before this one as long as its count says?",
    "other-engine": "use the compute engine's packets only (docs/pm4.md)",
    "generation": "build the stream for the chip it runs on (--arch)",
    "count": "count is the number of dwords after the header, minus 1",
    "truncated": "write the whole packet before the write pointer moves",
}


def _reserved(packet: Packet) -> Iterator[Complaint]:
    for dword, extra in packet.reserved:
        if dword:
            hint = _RESERVED_HINTS.get((type(packet), dword), "write 0")
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


_RESERVED_HINTS: Mapping[tuple[type[Packet], int], str] = {
    (AcquireMem, 1): "dword 1 was gfx9's COHER_CNTL: write 0, cache operations go in the last dword",
    (IndirectBuffer, 3): "bit 22 is graphics' VMID inheritance; on compute it is bit 30",
}


def _values(packet: Packet, generation: Generation) -> Iterator[Complaint]:
    for field in packet.FIELDS:
        names = field.place.values(generation)
        if names is None:
            continue
        value = getattr(packet, field.name)
        if value in names:
            continue
        rule = "value" if field.place.complete else "value-unverified"
        text = f"{packet.NAME}.{field.label(generation)} = {value:#x} has no meaning on {generation.name.lower()}"
        known = ", ".join(f"{key}={name}" for key, name in list(names.items())[:8])
        yield field.place.spans[0].dword, rule, text, f"known are {known}"


def _memory(packet: Packet, context: Context) -> Iterator[Complaint]:
    for access in accesses(packet):
        where = f"{packet.NAME}: {access.kind} of {access.size_bytes} bytes at {access.va:#x}"
        if access.va % access.align:
            text = f"{where}, wanted a multiple of {access.align}"
            yield access.dword, "alignment", text, f"the access would land at {access.va & -access.align:#x}"
        if not canonical(access.va) or not canonical(access.va + max(access.size_bytes, 1) - 1):
            yield access.dword, "address-range", f"{where} cannot be mapped", "is the address set, and in bytes?"
        elif context.mapped is not None:
            reason = context.mapped(access.va, access.size_bytes, access.kind)
            if reason is not None:
                yield access.dword, "unmapped", f"{where}: {reason}", "map the buffer before submitting"


# --- registers ---------------------------------------------------------------------------


def _registers(packet: Packet, generation: Generation) -> Iterator[Complaint]:
    space = register_space(packet)
    assert space is not None
    for write in register_writes(packet):
        register = register_at(write.address, generation)
        if not space.base <= write.address < space.end:
            text = (
                f"{packet.NAME} offset {write.address - space.base:#x}: wanted below {space.end - space.base:#x}"
            )
            hint = f"the field is an offset from {space.base:#x}"
            yield write.dword, "register-range", text, hint
            return  # the next ones are no better
        if register is None:
            if _USER_DATA + USER_DATA_COUNT <= write.address < _USER_DATA + 2 * USER_DATA_COUNT:
                text = f"USER_DATA_{write.address - _USER_DATA}: there are {USER_DATA_COUNT}"
                yield write.dword, "user-data", text, "pass a pointer to an argument block instead"
                return
            text = f"{packet.NAME} offset {write.address - space.base:#x} has no name on {generation.name.lower()}"
            yield write.dword, "register-unknown", text, "check the offset against docs/pm4.md"
        elif register.privileged:
            yield write.dword, "register-privileged", f"{register.name} is the kernel's", "leave it out"
        else:
            extra = write.value & ~mask_of(register.fields) if register.fields else 0
            if extra:
                text = f"{register.name} = {write.value:#x}: bits {extra:#x} have no field"
                yield write.dword, "register-bits", text, "write 0"
            yield from _shader_registers(write.address, write.value, write.dword, generation)


def _shader_registers(address: int, value: int, dword: int, generation: Generation) -> Iterator[Complaint]:
    if address == _RSRC2:
        users = value >> 1 & 0x1F
        if users > USER_DATA_COUNT:
            text = f"RSRC2 USER_SGPR = {users}: there are {USER_DATA_COUNT}"
            yield dword, "user-data", text, "pass a pointer to an argument block instead"
        if generation == Generation.GFX12 and value & 1 << 6:
            yield dword, "dynamic-vgpr", "RSRC2 bit 6 turns on dynamic VGPRs", "clear it: a gfx11 trap bit?"
    elif address == _RSRC1 and generation == Generation.GFX12:
        fields = {field.name: field for field in PGM_RSRC1[generation]}
        if fields["PRIV"].of(value):
            yield dword, "rsrc1-priv", "RSRC1 PRIV is set", "leave it 0 on gfx12"
        if fields["SGPRS"].of(value):
            yield dword, "register-bits", "RSRC1 bits 9:6 (SGPRS) are reserved on gfx12", "write 0"


# --- single packets ---------------------------------------------------------------------------


def _ib(packet: IndirectBuffer, context: Context) -> Iterator[Complaint]:
    if not packet.valid:
        yield 3, "ib-valid", "INDIRECT_BUFFER without the valid bit (23)", "size | 1 << 23"
    if context.queue == "userq" and not packet.inherit_vmid:
        text = "INDIRECT_BUFFER without bit 30 on a user queue"
        yield 3, "ib-inherit-vmid", text, "size | 1 << 23 | 1 << 30"
    if context.queue == "kfd" and packet.inherit_vmid:
        yield 3, "ib-inherit-vmid-kfd", "INDIRECT_BUFFER with bit 30 on a KFD queue", "size | 1 << 23"
    if packet.vmid or packet.priv:
        text = f"INDIRECT_BUFFER with vmid {packet.vmid}, priv {packet.priv}: wanted 0 and 0"
        yield 3, "ib-vmid", text, "the queue's own VMID is used"
    if packet.size_dw == 0:
        yield 3, "ib-size", "INDIRECT_BUFFER of 0 dwords", "leave it out"
    if packet.address % IB_ALIGN_BYTES or packet.size_dw % IB_ALIGN_DWORDS:
        text = f"IB of {packet.size_dw} dwords at {packet.address:#x}: wanted multiples of 8 dwords and 32 bytes"
        yield 1, "ib-alignment", text, "pad with NOPs to 8 dwords"
    if context.is_ib and not packet.chain:
        yield 0, "ib-nesting", "INDIRECT_BUFFER inside an IB", "call it from the ring, or chain"
    if packet.chain and not context.is_ib:
        yield 3, "ib-chain", "INDIRECT_BUFFER with chain in the ring", "chain from an IB only"


def _dispatch(packet: DispatchDirect | DispatchIndirect, context: Context) -> Iterator[Complaint]:
    dword = packet.DWORDS[0] - 1
    if not packet.initiator & 1:
        text = f"initiator {packet.initiator:#x} lacks COMPUTE_SHADER_EN (bit 0)"
        yield dword, "dispatch-disabled", text, "0x8005 launches wave32, 0x5 wave64"
    extra = packet.initiator & ~mask_of(DISPATCH_INITIATOR[context.generation])
    if extra:
        yield dword, "register-bits", f"initiator {packet.initiator:#x}: bits {extra:#x} have no field", "write 0"
    if isinstance(packet, DispatchDirect) and 0 in (packet.dim_x, packet.dim_y, packet.dim_z):
        text = f"DISPATCH_DIRECT of {packet.dim_x} x {packet.dim_y} x {packet.dim_z}"
        yield 1, "dispatch-empty", text, "leave it out"


def _acquire(packet: AcquireMem, context: Context) -> Iterator[Complaint]:
    extra = packet.gcr_cntl & ~mask_of(gcr.ACQUIRE[context.generation])
    if extra:
        text = f"GCR_CNTL {packet.gcr_cntl:#x}: gfx12 has no bits {extra:#x} (GLM, GL1)"
        yield 7, "gcr-reserved", text, "tolerated; write 0"


def _release(packet: ReleaseMem, context: Context) -> Iterator[Complaint]:
    extra = packet.gcr_cntl & ~mask_of(gcr.RELEASE[context.generation])
    if extra:
        text = f"gcr_cntl {packet.gcr_cntl:#x}: gfx12 has no bits {extra:#x} (GLM, GL1)"
        yield 1, "gcr-reserved", text, "tolerated; write 0"
    if packet.data_sel == 0 and packet.address:
        yield 2, "empty", "RELEASE_MEM with an address but data_sel 0 writes nothing", "data_sel 1 or 2 writes"


def _event(packet: EventWrite, context: Context) -> Iterator[Complaint]:
    wanted = (
        4 if packet.event_type == CS_PARTIAL_FLUSH else 2 if packet.event_type == SAMPLE_PIPELINESTAT else None
    )
    if wanted is not None and packet.event_index != wanted:
        text = f"event {packet.event_type:#x} with index {packet.event_index}: wanted {wanted}"
        yield 1, "event", text, "CS_PARTIAL_FLUSH is 0x407"
    if (packet.address is not None) != (packet.event_type == SAMPLE_PIPELINESTAT):
        text = f"event {packet.event_type:#x} in {2 if packet.address is None else 4} dwords"
        yield 1, "event", text, "only a sample event has an address"


def _dma(packet: DmaData, context: Context) -> Iterator[Complaint]:
    if packet.byte_count == 0:
        yield 6, "empty", "DMA_DATA of 0 bytes", "leave it out"


def _pred_exec(packet: PredExec, context: Context) -> Iterator[Complaint]:
    rule = "unlisted" if context.is_ib else "pred-exec-ring"
    yield 0, rule, "PRED_EXEC is in none of AMD's compute packet tables for this chip", "use COND_EXEC"


def _fence_wait(packet: FenceWaitMulti, context: Context) -> Iterator[Complaint]:
    yield (
        1,
        "fence-wait",
        f"FENCE_WAIT_MULTI control {packet.control:#x} is unverified",
        "WAIT_REG_MEM64 per fence",
    )
    if len(packet.fences) > FENCE_WAIT_MAX:
        text = f"FENCE_WAIT_MULTI of {len(packet.fences)} fences, wanted at most {FENCE_WAIT_MAX}"
        yield 0, "fence-wait-many", text, "split it"


def _fence_signal(packet: ProtectedFenceSignal, context: Context) -> Iterator[Complaint]:
    if context.queue == "kfd":
        yield 0, "fence-queue", "PROTECTED_FENCE_SIGNAL on a KFD queue", "RELEASE_MEM to memory of your own"


def _packed(packet: SetShRegPairsPacked | SetShRegPairsPackedN, context: Context) -> Iterator[Complaint]:
    if packet.writes_count != len(packet.writes):
        text = f"{packet.NAME} counts {packet.writes_count} registers and holds {len(packet.writes)}"
        yield 1, "register-count", text, f"{type(packet).__name__}.of(writes) counts"


_SPECIAL: Mapping[type[Packet], Callable[[Any, Context], Iterator[Complaint]]] = {
    IndirectBuffer: _ib,
    DispatchDirect: _dispatch,
    DispatchIndirect: _dispatch,
    AcquireMem: _acquire,
    ReleaseMem: _release,
    EventWrite: _event,
    DmaData: _dma,
    PredExec: _pred_exec,
    FenceWaitMulti: _fence_wait,
    ProtectedFenceSignal: _fence_signal,
    SetShRegPairsPacked: _packed,
    SetShRegPairsPackedN: _packed,
}


# --- packets and their neighbours ---------------------------------------------------------------------------


def _skip(item: Item, count: int, ends: set[int], size: int) -> Iterator[Complaint]:
    target = item.offset + item.length + count
    if target > size:
        text = f"{count} dwords are to be skipped, {size - item.offset - item.length} are left"
        yield item.length - 1, "skip-range", text, "count the dwords of whole packets"
    elif target not in ends:
        text = f"skipping {count} dwords leads to {target:#06x}, inside a packet"
        yield item.length - 1, "skip-range", text, "count the dwords of whole packets"


def _fence_order(items: Sequence[Item], position: int, context: Context) -> Iterator[Complaint]:
    if context.queue != "userq":
        return
    after = [item for item in items[position + 1 :] if type(item.packet) is not Nop]
    if after:
        text = "PROTECTED_FENCE_SIGNAL is not the last packet"
        yield 0, "fence-order", text, "what follows it is in no kernel fence before the next one"
    if position == 0 or type(items[position - 1].packet) is not ReleaseMem:
        text = "PROTECTED_FENCE_SIGNAL without a RELEASE_MEM right before it"
        yield 0, "fence-order", text, "put a RELEASE_MEM before it: whether it waits for dispatches is unverified"
