"""Packets that order work: cache operations, fences, waits, events.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from typing import Self

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.generation import GFX11
from zinc_rt.pm4.opcodes import Opcode
from zinc_rt.pm4.packet import Packet, address, bits, pair, word
from zinc_rt.pm4.packets.names import CACHE, CACHE_LABELS, FUNCTIONS

EVERYTHING_256B = (1 << 40) - 1

# Event types the compute engine is sent by shipped software: VGT_EVENT_TYPE in PAL's enum headers.
CS_PARTIAL_FLUSH = 0x07
CACHE_FLUSH_AND_INV_TS = 0x14
BOTTOM_OF_PIPE_TS = 0x28
CS_DONE = 0x2F
EVENTS = {
    0x07: "CS_PARTIAL_FLUSH",
    0x14: "CACHE_FLUSH_AND_INV_TS",
    0x17: "PERFCOUNTER_START",
    0x18: "PERFCOUNTER_STOP",
    0x19: "PIPELINESTAT_START",
    0x1A: "PIPELINESTAT_STOP",
    0x1B: "PERFCOUNTER_SAMPLE",
    0x1E: "SAMPLE_PIPELINESTAT",
    0x28: "BOTTOM_OF_PIPE_TS",
    0x2F: "CS_DONE",
    0x35: "THREAD_TRACE_MARKER",
    0x37: "THREAD_TRACE_FINISH",
}
EVENT_INDICES = {0: "other", 2: "sample_pipelinestat", 4: "cs_partial_flush"}
EVENT_INDICES_GFX11 = EVENT_INDICES | {index: f"sample_streamoutstats_{index - 8}" for index in (8, 9, 10, 11)}


@packet(Opcode.ACQUIRE_MEM, dwords=8)
class AcquireMem(Packet):
    """Cache operations over a range, by default all of memory, before what follows.

    `gcr_cntl` is 19 bits as `gcr.acquire` makes them; base and size count 256 bytes.
    """

    gcr_cntl: int = bits(7, 18, 0)
    base_256b: int = pair(4, high_bits=24, default=0)
    size_256b: int = pair(2, high_bits=8, default=EVERYTHING_256B)
    poll_interval: int = bits(6, 15, 0, default=4)  # kfdtest's


DATA_SELECTS = {0: "none", 1: "32_bits", 2: "64_bits", 3: "gpu_clock", 4: "system_clock"}
DATA_SELECTS_GFX11 = DATA_SELECTS | {5: "gds", 7: "atomic_add"}
INTERRUPT_SELECTS = {
    0: "none",
    1: "interrupt",
    2: "interrupt_after_write_confirm",
    3: "write_confirm",
    4: "always_ctxid",
    5: "ctxid_if_32_bit_compare",
    6: "ctxid_if_64_bit_compare",
}


@packet(Opcode.RELEASE_MEM, dwords=8)
class ReleaseMem(Packet):
    """At the end of all earlier work: cache operations, then `data` to `address`, then perhaps an interrupt.

    Needs an EOP buffer on the queue. `gcr_cntl` is 13 bits as `gcr.release` makes them.
    """

    address: int = address(3)
    data: int = pair(5)
    gcr_cntl: int = bits(1, 24, 12, default=0)
    data_sel: int = bits(2, 31, 29, default=1, values=(DATA_SELECTS_GFX11, DATA_SELECTS))
    int_sel: int = bits(2, 26, 24, default=0, values=INTERRUPT_SELECTS)
    int_ctxid: int = word(7, default=0)
    event_type: int = bits(1, 5, 0, default=CACHE_FLUSH_AND_INV_TS, known=EVENTS)
    event_index: int = bits(1, 11, 8, default=5, values={5: "end_of_pipe", 6: "shader_done"})
    cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)
    dst_sel: int = bits(
        2,
        17,
        16,
        default=0,
        values={0: "memory", 1: "l2", 2: "queue_wptr_register", 3: "queue_wptr_poll_mask"},
    )
    wait_sync: int = bits(1, 7, default=0)
    pq_exe_status: int = bits(1, 28, default=0)
    glk_inv: int = bits(1, 30, default=0)
    mes_intr_pipe: int = bits(2, 21, 20, default=0)
    mes_action_id: int = bits(2, 23, 22, default=0)


SPACES = {0: "register", 1: "memory"}
WAIT_OPERATIONS = {0: "wait", 1: "write_wait_write", 3: "wait_preemptable"}


@packet(Opcode.WAIT_REG_MEM, dwords=7)
class WaitRegMem(Packet):
    """Stall the queue until (value at `address` & mask) FUNCTION reference, unsigned. There is no time-out.

    In register space `address` is a register's dword address; for operation 1 its upper half is the register
    to poll, its lower half the one to write (`register_pair`).
    """

    address: int = address(2)
    reference: int = word(4)
    mask: int = word(5, default=0xFFFFFFFF)
    function: int = bits(1, 2, 0, default=3, values=FUNCTIONS)
    mem_space: int = bits(1, 5, 4, default=1, values=SPACES)
    operation: int = bits(1, 7, 6, default=0, values=WAIT_OPERATIONS)
    poll_interval: int = bits(6, 15, 0, default=4)
    optimize_ace_offload: int = bits(6, 31, default=0)
    cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)
    mes_intr_pipe: int = bits(1, 23, 22, default=0)
    mes_action: int = bits(1, 24, default=0)

    @classmethod
    def register_pair(cls, *, write: int, poll: int, value: int, mask: int) -> Self:
        """Write `value` to one register, wait until another has it: tinygrad's HDP flush."""
        return cls(write | poll << 32, value, mask, mem_space=0, operation=1)


@packet(Opcode.WAIT_REG_MEM64, dwords=9)
class WaitRegMem64(Packet):
    """WAIT_REG_MEM over 64 bits: what waits on a user-queue fence (va, value)."""

    address: int = address(2)
    reference: int = pair(4)
    mask: int = pair(6, default=0xFFFFFFFFFFFFFFFF)
    function: int = bits(1, 2, 0, default=5, values=FUNCTIONS)
    mem_space: int = bits(1, 5, 4, default=1, values=SPACES)
    operation: int = bits(1, 7, 6, default=0, values=WAIT_OPERATIONS)
    poll_interval: int = bits(8, 15, 0, default=4)
    optimize_ace_offload: int = bits(8, 31, default=0)
    cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)
    mes_intr_pipe: int = bits(1, 23, 22, default=0)
    mes_action: int = bits(1, 24, default=0)


@packet(Opcode.EVENT_WRITE, dwords=(2, 4))
class EventWrite(Packet):
    """Send an event down the pipe. Two dwords, or four with the address that a sample event writes to."""

    event_type: int = bits(1, 5, 0, known=EVENTS)
    event_index: int = bits(1, 11, 8, default=0, values=(EVENT_INDICES_GFX11, EVENT_INDICES))
    sample_mode: int = bits(1, 30, 29, default=0)
    offload_enable: int = bits(1, 31, default=0)
    address: int | None = address(2, default=None, optional=True)

    @classmethod
    def cs_partial_flush(cls) -> Self:
        """Stall the CP until all earlier compute waves of this queue are done. No cache is flushed."""
        return cls(CS_PARTIAL_FLUSH, 4)


@packet(Opcode.HDP_FLUSH, dwords=2)
class HdpFlush(Packet):
    """Push what the CPU wrote through the BAR out to VRAM."""

    dummy: int = word(1, default=0)


@packet(Opcode.ATOMIC_GDS, dwords=11, on=GFX11)
class AtomicGds(Packet):
    """An atomic on the global data share, which gfx12 no longer has."""

    atomic: int = bits(1, 7, 0)
    base: int = bits(3, 15, 0)
    size: int = bits(4, 15, 0)
    offset_0: int = bits(5, 7, 0, default=0)
    offset_1: int = bits(5, 23, 16, default=0)
    destination: int = word(6, default=0)
    source_0: int = pair(7, default=0)
    source_1: int = pair(9, default=0)
    compare_swap: int = bits(1, 16, default=0)
    complete: int = bits(1, 17, default=0)
    read_preop: int = bits(1, 18, default=0)
    read_control: int = bits(1, 20, 19, default=0)
    auto_increment_bytes: int = bits(2, 5, 0, default=0)
    dmode: int = bits(2, 8, default=0)
