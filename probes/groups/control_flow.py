"""Waits, calls and skips of the command processor: P26 WAIT_REG_MEM, P27 INDIRECT_BUFFER, P28 COND_EXEC."""

from __future__ import annotations

import time

from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4.packets import CondExec, IndirectBuffer, Nop, WaitRegMem, WriteData
from zinc_rt.probes.groups.cp_basic import FAULTED, NOT_FETCHED
from zinc_rt.probes.groups.cp_data import expect_dwords
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import POISON32
from zinc_rt.probes.kit.probe_queue import FREE_AT
from zinc_rt.probes.outcome import T1, T2, Outcome, check, match_message, passed, symptom
from zinc_rt.probes.probe import fails, fails_like, probe, proves

FLAG = FREE_AT
HELD_SECONDS = 0.05
# function code, reference, value for which (value & mask) FUNCTION reference holds
_TRUE = ((0, 9, 1), (1, 9, 8), (2, 9, 9), (3, 9, 9), (4, 9, 8), (5, 9, 9), (6, 9, 10))

_SHARED = (NOT_FETCHED, FAULTED)


@probe("P26", "WAIT_REG_MEM", (T1, T2), hazard=1, needs=("P23",))
@proves(
    "the CP waits for memory, and continues when the CPU stores",
    passes_when=(
        "seven functions that are true at once; two that become true only after the CPU's store, 50 ms later"
    ),
)
@fails_like(*_SHARED)
@fails(symptom("early"), "mask or function is interpreted differently", "compare dword 1 with the chip's headers")
@fails(
    symptom("rptr-stopped", "no-fence"),
    (
        "the CP never saw the condition as true: the CPU's store is not visible (cached memory), or the "
        "function code differs"
    ),
    "the flag must be in uncached GTT; the packet at rptr is in the report",
)
def probe_waits(c: ProbeContext) -> Outcome:
    queue = c.queue()
    va, flag = queue.memory.gpu_va + FLAG, FLAG
    for function, reference, value in _TRUE:
        queue.memory.put32(flag, 0xAB00_0000 | value)
        queue.finish([WaitRegMem(va, reference, mask=0xFF, function=function)], f"wait, function {function}")
    queue.memory.put32(flag, 0)
    fence = queue.submit([WaitRegMem(va, 1)], "wait for the CPU")
    time.sleep(HELD_SECONDS)
    check(not fence.done(), "early", "a wait for 1 passed while memory held 0")
    queue.memory.put32(flag, 1)
    fence.wait(c.poll_seconds)
    queue.memory.put32(flag, 0x10)
    fence = queue.submit([WaitRegMem(va, 0x20, mask=0xF0, function=5)], "wait for a masked value")
    time.sleep(HELD_SECONDS)
    check(not fence.done(), "early", "a wait for >= 0x20 passed while memory held 0x10")
    queue.memory.put32(flag, 0x2F)
    start = time.perf_counter()
    fence.wait(c.poll_seconds)
    return passed(functions=len(_TRUE), released_microseconds=round((time.perf_counter() - start) * 1e6, 1))


@probe("P27", "INDIRECT_BUFFER", (T1, T2), hazard=1, needs=("P23",))
@proves(
    "the CP executes an indirect buffer and returns",
    passes_when="one, two and a chained buffer: every mark in order",
)
@fails(
    match_message("page fault"),
    "the buffer is not mapped (or not executable) in the address space it ran in; on T2 bit 30 is missing",
    "on T2 see P51; otherwise the report has the fault's address and its allocation",
)
@fails_like(NOT_FETCHED)
@fails(
    symptom("rptr-stopped", "no-fence"),
    "the call does not return: valid bit 23, the size field, or an unaligned buffer",
    "buffers start at 32 bytes and are multiples of 8 dwords",
)
@fails(symptom("nothing-written", "wrong-data"), "buffers are executed out of order, or not at all", "see dwords")
def probe_indirect_buffers(c: ProbeContext) -> Outcome:
    queue = c.queue()
    code = c.memory(1 << 16, "ib", Placement.GTT)
    va = queue.memory.gpu_va + FREE_AT

    def write_mark(index: int, value: int) -> WriteData:
        return WriteData(va + 4 * index, (value,), wr_confirm=1)

    buffer = queue.put_ib(code, [write_mark(0, 1), *[Nop()] * 3])
    queue.finish([buffer, write_mark(1, 2)], "one IB")
    expect_dwords(queue, FREE_AT, (1, 2, POISON32), "one IB, then the ring")
    two = queue.put_ib(code, [write_mark(2, 3), write_mark(3, 4), *[Nop()] * 6], 4096)
    three = queue.put_ib(code, [write_mark(3, 5), *[Nop()] * 3], 8192)
    queue.finish([two, three, write_mark(4, 6)], "two IBs")
    expect_dwords(queue, FREE_AT + 8, (3, 5, 6, POISON32), "two IBs in order")
    last = queue.put_ib(code, [write_mark(5, 7), *[Nop()] * 3], 12288)
    chained = IndirectBuffer(last.address, last.size_dw, inherit_vmid=last.inherit_vmid, chain=1)
    first = queue.put_ib(code, [write_mark(6, 8), *[Nop()] * 7, chained], 16384)
    queue.finish([first, write_mark(7, 9)], "a chained IB")
    expect_dwords(queue, FREE_AT + 20, (7, 8, 9, POISON32), "a chained IB")
    return passed(buffers=5)


@probe("P28", "COND_EXEC", (T1, T2), hazard=1, needs=("P23",))
@proves(
    "the CP skips exactly the given number of dwords",
    passes_when="flag 0 skips, any other does not, and the following packets always run",
)
@fails_like(*_SHARED)
@fails(
    symptom("wrong-data", "nothing-written", "rptr-stopped"),
    "exec_count is off by one, or the flag is interpreted differently",
    "compare dword 4 with the chip's headers",
)
def probe_conditional(c: ProbeContext) -> Outcome:
    queue = c.queue()
    flag, va = queue.memory.gpu_va + FLAG, queue.memory.gpu_va + FREE_AT + 64
    body = WriteData(va, (1,), wr_confirm=1)
    count = len(body.words(queue.generation))
    for value, expected in ((0, POISON32), (1, 1), (0x8000_0000, 1)):
        queue.memory.put32(FLAG, value)
        queue.memory.put32(FREE_AT + 64, POISON32)
        queue.memory.put32(FREE_AT + 68, POISON32)
        queue.finish([CondExec(flag, count), body, WriteData(va + 4, (2,), wr_confirm=1)], f"COND_EXEC of {value}")
        expect_dwords(queue, FREE_AT + 64, (expected, 2), f"flag {value:#x}")
    return passed(skipped_dw=count)
