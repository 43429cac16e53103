"""P18 to P22: the command processor reads packets and writes a fence."""

from __future__ import annotations

import time

from zinc_rt.kmd.events import UNSIGNALLED, EventKind
from zinc_rt.pm4.packets import Nop
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import POISON32, POISON64
from zinc_rt.probes.kit.probe_queue import FREE_AT, ProbeQueue
from zinc_rt.probes.outcome import (
    T1,
    T2,
    Outcome,
    ProbeFailed,
    Signature,
    check,
    is_device_lost,
    match_message,
    passed,
    symptom,
)
from zinc_rt.probes.probe import fails, fails_like, probe, proves

NOPS = 16
ILLEGAL_LOOKING = 0xC000F200  # opcode 0xF2, which no chip has: as a NOP's body it must be skipped
COUNTER_HZ = 100e6
RATE_SECONDS = 0.1
RATE_LIMIT = 0.01

NOT_FETCHED = Signature(
    lambda outcome: outcome.symptom == "rptr-stuck" and not outcome.faults,
    (
        "the doorbell does not reach the command processor (wrong offset, a 32-bit store, wptr not "
        "stored before it), or the queue is not mapped to hardware"
    ),
    "compare with P17 and `dmesg | grep -iE 'evict|mes'`; on T2 the doorbell's index counts 8 bytes (P48)",
)
GONE = Signature(
    is_device_lost,
    "the device disappeared when the doorbell was rung: it is gone from the bus, or its process ended",
    "`dmesg | grep -iE 'amdgpu|pcie'`; reseat or power-cycle the card, then run P01 again",
)
FAULTED = Signature(
    match_message("page fault"),
    "the GPU accessed an address that is not mapped",
    "the report has the fault's address and its allocation; P42 tests deliberate faults",
)
_NEEDS = ("P15", "P17", "P48")


@probe("P18", "one-dword NOPs", (T1, T2), hazard=1, needs=_NEEDS)
@proves(
    "the command processor receives the doorbell and reads the ring",
    passes_when=f"rptr == wptr after {NOPS} NOPs of one dword",
)
@fails_like(GONE, FAULTED, NOT_FETCHED)
@fails(
    symptom("rptr-stopped"),
    "a NOP of one dword (0xFFFF1000) is not skipped: the chip interprets its count as a length",
    "P19 tries NOPs of other sizes; pad with those of two dwords",
)
def probe_nops(c: ProbeContext) -> Outcome:
    queue = c.queue()
    queue.run([Nop()] * NOPS, "one-dword NOPs")
    queue.parsed()
    return passed(wptr=queue.ring.wptr_dw, rptr=queue.ring.rptr_dw)


@probe("P19", "sized NOPs", (T1, T2), hazard=1, needs=("P18",))
@proves(
    "counts are correct: a packet body is skipped, whatever its contents",
    passes_when="rptr == wptr after NOPs of 2, 3 and 17 dwords with bodies that look like illegal packets",
)
@fails_like(GONE, NOT_FETCHED)
@fails(
    symptom("rptr-stopped"),
    "a body was interpreted as a packet: the count is off by one on this chip",
    "compare the packet at rptr with the documentation of its generation",
)
def probe_sized_nops(c: ProbeContext) -> Outcome:
    queue = c.queue()
    for size_dw in (2, 3, 17):
        queue.run([Nop((ILLEGAL_LOOKING,) * (size_dw - 1)), Nop()], f"NOP of {size_dw} dwords")
        queue.parsed()
    return passed(sizes="2, 3, 17")


@probe("P20", "32-bit fence (alive)", (T1, T2), hazard=1, needs=("P18",))
@proves(
    "the end of the pipe writes memory: the queue is alive",
    passes_when="the value in time, the adjacent dwords unchanged",
)
@fails_like(GONE, NOT_FETCHED)
@fails(
    match_message("page fault"),
    "RELEASE_MEM faulted: the queue has no EOP buffer, or the fence's address is not mapped",
    (
        "the EOP buffer is 4096 bytes on T1, 2048 on T2, mapped before the queue is created; the fault's "
        "address shows which of the two it was"
    ),
)
@fails(
    symptom("no-fence"),
    (
        "everything was read, and the fence was not written: the end of the pipe does not write (EOP "
        "buffer, cache policy), or is never reached"
    ),
    "`dmesg | grep -iE 'page fault|ring'`; -k P21 tries other widths",
)
@fails(symptom("neighbours"), "the write is wider than requested", "compare data_sel with P21")
def probe_fence32(c: ProbeContext) -> Outcome:
    return write_fence(c.queue())


def write_fence(queue: ProbeQueue) -> Outcome:
    """Write a 32-bit fence between poison values, to test that a queue works."""
    index, want = FREE_AT + 4, 0x0000_F20C
    start = time.perf_counter()
    queue.run([queue.release(queue.memory.gpu_va + index, want)], "32-bit fence")
    queue.wait_for_value32(index, want, "the 32-bit fence is not written")
    micros = (time.perf_counter() - start) * 1e6
    queue.parsed()
    around = queue.memory.u32(index - 4), queue.memory.u32(index + 4)
    check(around == (POISON32, POISON32), "neighbours", f"next to the fence: {around[0]:#x}, {around[1]:#x}")
    return passed(fence=hex(want), microseconds=round(micros, 1))


@probe("P21", "64-bit fence, timestamps, order", (T1, T2), hazard=1, needs=("P20",))
@proves(
    "fences of 64 bits and timestamps are exact and in order",
    passes_when="value exact; counters rise at 100 MHz ±1 %; twenty fences in sequence",
)
@fails(
    symptom("wrong-fence"),
    "half a value: data_sel 1 (32 bits) instead of 2",
    "compare the packet's second dword with the disassembly in the report",
)
@fails(
    symptom("wrong-rate"),
    "a clock other than the 100 MHz reference: data_sel 4 (system clock), or a busy host",
    "run it again on an idle host; 4 in data_sel is the system clock",
)
def probe_fence64(c: ProbeContext) -> Outcome:
    queue = c.queue()
    base, want = queue.memory.gpu_va, 0x1234_5678_9ABC_DEF0
    wide, times, many = FREE_AT, FREE_AT + 64, FREE_AT + 1024
    queue.finish([queue.release(base + wide, want, data_sel=2)], "64-bit fence")
    got = queue.memory.u64(wide)
    check(got == want, "wrong-fence", f"the 64-bit fence holds {got:#x}, not {want:#x}")

    queue.finish([queue.release(base + times, 0, data_sel=3)], "timestamp")
    start = time.perf_counter()
    time.sleep(RATE_SECONDS)
    queue.finish([queue.release(base + times + 8, 0, data_sel=3)], "timestamp")
    seconds = time.perf_counter() - start
    first, second = queue.memory.u64(times), queue.memory.u64(times + 8)
    check(POISON64 not in (first, second) and second > first, "wrong-rate", f"timestamps {first:#x}, {second:#x}")

    queue.finish([queue.release(base + many + 8 * i, i + 1, data_sel=2) for i in range(20)], "twenty fences")
    values = [queue.memory.u64(many + 8 * i) for i in range(20)]
    check(values == list(range(1, 21)), "wrong-fence", f"twenty fences hold {values}")

    queue.finish([queue.release(base + times + 16 + 8 * i, 0, data_sel=3) for i in range(20)], "twenty timestamps")
    stamps = [queue.memory.u64(times + 16 + 8 * i) for i in range(20)]
    check(stamps == sorted(stamps), "wrong-order", f"timestamps of twenty fences decrease: {stamps}")
    hz = _measure_rate(c, queue, times, second - first, seconds)
    return passed(counter_mhz=round(hz / 1e6, 3), limit_percent=100 * RATE_LIMIT)


def _measure_rate(c: ProbeContext, queue: ProbeQueue, position: int, ticks: int, seconds: float) -> float:
    """Measure the counter against this host's clock. The best of a few attempts counts, because a busy host delays
    one side.
    """
    best = ticks / seconds
    for _ in range(4):
        if abs(best / COUNTER_HZ - 1) <= RATE_LIMIT:
            return best
        marks = []
        for index in (0, 1):
            before = time.perf_counter()
            queue.finish([queue.release(queue.memory.gpu_va + position + 8 * index, 0, data_sel=3)], "timestamp")
            marks.append((queue.memory.u64(position + 8 * index), (before + time.perf_counter()) / 2))
            time.sleep(RATE_SECONDS)
        rate = (marks[1][0] - marks[0][0]) / (marks[1][1] - marks[0][1])
        best = min(best, rate, key=lambda hz: abs(hz / COUNTER_HZ - 1))
    if abs(best / COUNTER_HZ - 1) > RATE_LIMIT:
        raise ProbeFailed(
            "wrong-rate",
            f"the GPU counter runs at {best / 1e6:.3f} MHz",
            measure={"counter_mhz": best / 1e6},
            limit={"counter_mhz": 100, "relative": RATE_LIMIT},
        )
    return best


@probe("P22", "interrupt event", (T1,), hazard=1, needs=("P13", "P20"))
@proves(
    "an end-of-pipe interrupt ends a host's wait", passes_when="the event fires and the kernel clears its slot"
)
@fails(
    symptom("no-interrupt"),
    "the slot was written, but no interrupt came: int_sel, message-signalled interrupts, or a full interrupt ring",
    "boot with amdgpu.msi=1; `grep amdgpu /proc/interrupts` must count; polling works without it",
)
@fails(
    symptom("slot-untouched"),
    "the event page is not mapped for the GPU, or RELEASE_MEM did not run",
    "P13 and P20 distinguish these",
)
@fails(symptom("slot-kept"), "the kernel does not clear slots", "please report the kernel")
def probe_interrupt(c: ProbeContext) -> Outcome:
    queue = c.queue()
    events = c.process.events
    event = events.create(EventKind.SIGNAL)
    queue.run(
        [queue.release(event.slot_va, event.trigger, data_sel=2, int_sel=2, int_ctxid=event.event_id)], "interrupt"
    )
    start = time.perf_counter()
    fired = events.wait([event], c.poll_seconds)
    page = c.process.events.page
    assert page is not None
    slot = int.from_bytes(page.host.view[event.slot_va - page.gpu_va :][:8], "little")
    if not fired:
        raise queue.make_stuck_error(
            f"no event within {c.poll_seconds:g} s",
            fence=f"slot {slot:#x}",
            symptom="slot-untouched" if slot == UNSIGNALLED else "no-interrupt",
        )
    check(slot == UNSIGNALLED, "slot-kept", f"the kernel left {slot:#x} in the event's slot")
    micros = (time.perf_counter() - start) * 1e6
    event.destroy()
    return passed(event_id=event.event_id, microseconds=round(micros, 1))
