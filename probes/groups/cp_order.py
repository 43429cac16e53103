"""Long streams and state: P29 ring wrap, P30 EVENT_WRITE and ACQUIRE_MEM, P31 SET_SH_REG."""

from __future__ import annotations

from zinc_rt.pm4 import gcr
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import AcquireMem, CopyData, EventWrite, Nop, SetShReg
from zinc_rt.pm4.registers import SH, USER_DATA_COUNT, Sh
from zinc_rt.probes.groups.cp_basic import FAULTED, NOT_FETCHED
from zinc_rt.probes.groups.cp_data import expect_dwords
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import POISON32
from zinc_rt.probes.kit.probe_queue import FREE_AT, ProbeQueue
from zinc_rt.probes.outcome import T1, T2, Outcome, check, make_skip, passed, symptom
from zinc_rt.probes.probe import fails, fails_like, probe, proves

RING_BYTES = 4096
LAPS = 9
_ALL = {
    Generation.GFX11: gcr.acquire(
        Generation.GFX11, GLI_INV=1, GLK_INV=1, GLV_INV=1, GL1_INV=1, GL2_INV=1, GL2_WB=1
    ),
    Generation.GFX12: gcr.acquire(Generation.GFX12, GLI_INV=1, GLK_INV=1, GLV_INV=1, GL2_INV=1, GL2_WB=1),
}


@probe("P29", "ring wrap", (T1, T2), hazard=1, needs=("P20",), seconds=60.0)
@proves(
    "host and hardware agree about the end of the ring",
    passes_when=(
        f"a ring of {RING_BYTES} bytes, {2 * LAPS} laps, packets across the end or padded up to it: fences in "
        "order"
    ),
)
@fails(
    lambda o: (
        o.evidence is not None
        and o.evidence.wptr >= o.evidence.ring_dw // 8
        and o.symptom in ("rptr-stuck", "rptr-stopped", "no-fence", "wrong-order", "wrong-rptr", "errno")
    ),
    "the hardware's ring has another size than ours (MQD: log2 of dwords, less one; bytes for "
    "dwords), or wptr was wrapped by software",
    "queue_size is the mapping's exact power of two in bytes; wptr is never wrapped",
)
@fails_like(NOT_FETCHED, FAULTED)
def probe_ring_wrap(c: ProbeContext) -> Outcome:
    queue = c.queue(ring_bytes=RING_BYTES)
    straddling = _run_laps(queue, pad=False)
    padded = _run_laps(queue, pad=True)
    queue.parsed()  # the fence comes before rptr is told
    rptr = queue.ring.rptr_dw % queue.ring.ring_dw
    location = queue.ring.wptr_dw % queue.ring.ring_dw
    check(
        rptr == location,
        "wrong-rptr",
        f"rptr {rptr}, wptr modulo the ring {location}",
        evidence=queue.collect_evidence(),
    )
    return passed(laps=2 * LAPS, fences=straddling + padded, wptr=queue.ring.wptr_dw)


def _run_laps(queue: ProbeQueue, *, pad: bool) -> int:
    """Check fences whose packets cross the end of the ring or are padded up to it; each fence must contain its
    number.
    """
    ring, index = queue.ring, FREE_AT
    start, count = ring.wptr_dw, 0
    while ring.wptr_dw - start < LAPS * ring.ring_dw:
        room = ring.ring_dw - ring.wptr_dw % ring.ring_dw
        size = 3 + 8 + 8 + 2  # NOP, our fence, the ring's fence and what may follow it
        if pad and room < size:
            queue.run([Nop()] * room, "padding to the end")
        count += 1
        packets = [Nop((count, count)), queue.release(queue.memory.gpu_va + index, count, data_sel=2)]
        queue.finish(packets, f"fence {count}")
        got = queue.memory.u64(index)
        check(got == count, "wrong-order", f"fence {count} holds {got}", evidence=queue.collect_evidence())
    return count


@probe("P30", "EVENT_WRITE, ACQUIRE_MEM", (T1, T2), hazard=1, needs=("P20",))
@proves(
    "flushes and cache operations end when nothing is running",
    passes_when="CS_PARTIAL_FLUSH, ACQUIRE_MEM of everything and of a range: a fence after each",
)
@fails_like(NOT_FETCHED)
@fails(
    symptom("rptr-stopped", "no-fence"),
    "ACQUIRE_MEM with the length of another generation (gfx9 has a dword less)",
    "count 6, GCR_CNTL last, on gfx10 and later",
)
def probe_events_and_caches(c: ProbeContext) -> Outcome:
    queue = c.queue()
    everything = _ALL[queue.generation]
    queue.finish([EventWrite.cs_partial_flush()], "CS_PARTIAL_FLUSH")
    queue.finish([AcquireMem(everything)], "ACQUIRE_MEM of everything")
    base = queue.memory.gpu_va >> 8
    queue.finish(
        [AcquireMem(everything, base_256b=base, size_256b=queue.memory.size_bytes >> 8)], "ACQUIRE_MEM of a range"
    )
    queue.finish([EventWrite.cs_partial_flush(), AcquireMem(everything)], "both")
    return passed(packets=5)


@probe("P31", "SET_SH_REG readback", (T1, T2), hazard=1, needs=("P24",))
@proves(
    "registers contain the values set by SET_SH_REG",
    passes_when="USER_DATA_0 to 15 copied to memory are equal; if reads are blocked: unverifiable",
)
@fails_like(NOT_FETCHED)
@fails(
    symptom("wrong-data", "nothing-written"),
    "an absolute register address was used where the packet requires the offset from 0x2C00",
    "USER_DATA_0 is offset 0x240",
)
def probe_registers(c: ProbeContext) -> Outcome:
    queue = c.queue()
    values = tuple(0x5A00_0000 | i * 0x0101 for i in range(USER_DATA_COUNT))
    va = queue.memory.gpu_va + FREE_AT
    queue.finish([SetShReg(Sh.USER_DATA_0, values)], "SET_SH_REG")
    queue.finish(
        [
            CopyData(SH.base + Sh.USER_DATA_0 + i, va + 4 * i, src_sel=0, wr_confirm=1)
            for i in range(USER_DATA_COUNT)
        ],
        "registers to memory",
    )
    got = [queue.memory.u32(FREE_AT + 4 * i) for i in range(USER_DATA_COUNT)]
    if set(got) <= {0, POISON32}:
        return make_skip(
            (
                "unverifiable: this chip does not permit a queue to read registers; P34 checks the "
                "values in a shader"
            ),
            cause="register reads are blocked for user queues",
            advice="nothing to do",
        )
    expect_dwords(queue, FREE_AT, values, "USER_DATA_0 to 15")
    return passed(registers=USER_DATA_COUNT)
