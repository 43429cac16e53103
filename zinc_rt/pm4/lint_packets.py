"""The linter's rules about single packets: a function a packet type, in SPECIAL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zinc_rt.pm4 import gcr
from zinc_rt.pm4.bits import mask_of
from zinc_rt.pm4.lint_rules import Complaint, StreamContext
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import (
    AcquireMem,
    DispatchDirect,
    DispatchIndirect,
    DmaData,
    EventWrite,
    FenceWaitMulti,
    IndirectBuffer,
    PredExec,
    ProtectedFenceSignal,
    ReleaseMem,
    SetShRegPairsPacked,
    SetShRegPairsPackedN,
)
from zinc_rt.pm4.packets.sync import CS_DONE, CS_PARTIAL_FLUSH, EVENTS
from zinc_rt.pm4.packets.userq import FENCE_WAIT_MAX
from zinc_rt.pm4.registers import DISPATCH_INITIATOR

SAMPLE_PIPELINESTAT = 0x1E
EVENT_WRITE_INDEX = {CS_PARTIAL_FLUSH: 4, SAMPLE_PIPELINESTAT: 2}  # pm4.md §3.9; of all others 0
END_OF_PIPE_INDEX, SHADER_DONE_INDEX = 5, 6  # of RELEASE_MEM, pm4.md §3.5
SHADER_DONE = (CS_DONE,)
IB_ALIGN_BYTES, IB_ALIGN_DWORDS = 32, 8  # INFO's ib_start_alignment and ib_size_alignment for compute


def _ib(packet: IndirectBuffer, context: StreamContext) -> Iterator[Complaint]:
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


def _dispatch(packet: DispatchDirect | DispatchIndirect, context: StreamContext) -> Iterator[Complaint]:
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


def _acquire(packet: AcquireMem, context: StreamContext) -> Iterator[Complaint]:
    extra = packet.gcr_cntl & ~mask_of(gcr.ACQUIRE[context.generation])
    if extra:
        text = f"GCR_CNTL {packet.gcr_cntl:#x}: gfx12 has no bits {extra:#x} (GLM, GL1)"
        yield 7, "gcr-reserved", text, "tolerated; write 0"


def _release(packet: ReleaseMem, context: StreamContext) -> Iterator[Complaint]:
    extra = packet.gcr_cntl & ~mask_of(gcr.RELEASE[context.generation])
    if extra:
        text = f"gcr_cntl {packet.gcr_cntl:#x}: gfx12 has no bits {extra:#x} (GLM, GL1)"
        yield 1, "gcr-reserved", text, "tolerated; write 0"
    wanted = SHADER_DONE_INDEX if packet.event_type in SHADER_DONE else END_OF_PIPE_INDEX
    if packet.event_index != wanted:
        text = f"RELEASE_MEM of event {packet.event_type:#x} with index {packet.event_index}: wanted {wanted}"
        yield 1, "event", text, "5 for end-of-pipe events such as CACHE_FLUSH_AND_INV_TS, 6 for shader-done ones"
    if packet.data_sel == 0 and packet.address:
        yield 2, "empty", "RELEASE_MEM with an address but data_sel 0 writes nothing", "data_sel 1 or 2 writes"


def _event(packet: EventWrite, context: StreamContext) -> Iterator[Complaint]:
    wanted = EVENT_WRITE_INDEX.get(packet.event_type, 0)
    if packet.event_type in EVENTS and packet.event_index != wanted:
        text = f"event {packet.event_type:#x} with index {packet.event_index}: wanted {wanted}"
        yield 1, "event", text, "CS_PARTIAL_FLUSH is 0x407"
    if (packet.address is not None) != (packet.event_type == SAMPLE_PIPELINESTAT):
        text = f"event {packet.event_type:#x} in {2 if packet.address is None else 4} dwords"
        yield 1, "event", text, "only a sample event has an address"


def _dma(packet: DmaData, context: StreamContext) -> Iterator[Complaint]:
    if packet.byte_count == 0:
        yield 6, "empty", "DMA_DATA of 0 bytes", "leave it out"


def _pred_exec(packet: PredExec, context: StreamContext) -> Iterator[Complaint]:
    rule = "unlisted" if context.is_ib else "pred-exec-ring"
    yield 0, rule, "PRED_EXEC is in none of AMD's compute packet tables for this chip", "use COND_EXEC"


def _fence_wait(packet: FenceWaitMulti, context: StreamContext) -> Iterator[Complaint]:
    yield (
        1,
        "fence-wait",
        f"FENCE_WAIT_MULTI control {packet.control:#x} is unverified",
        "WAIT_REG_MEM64 per fence",
    )
    if len(packet.fences) > FENCE_WAIT_MAX:
        text = f"FENCE_WAIT_MULTI of {len(packet.fences)} fences, wanted at most {FENCE_WAIT_MAX}"
        yield 0, "fence-wait-many", text, "split it"


def _fence_signal(packet: ProtectedFenceSignal, context: StreamContext) -> Iterator[Complaint]:
    if context.queue == "kfd":
        yield 0, "fence-queue", "PROTECTED_FENCE_SIGNAL on a KFD queue", "RELEASE_MEM to memory of your own"


def _packed(packet: SetShRegPairsPacked | SetShRegPairsPackedN, context: StreamContext) -> Iterator[Complaint]:
    if packet.writes_count != len(packet.writes):
        text = f"{packet.NAME} counts {packet.writes_count} registers and holds {len(packet.writes)}"
        yield 1, "register-count", text, f"{type(packet).__name__}.of(writes) counts"


SPECIAL: Mapping[type[Packet], Callable[[Any, StreamContext], Iterator[Complaint]]] = {
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
