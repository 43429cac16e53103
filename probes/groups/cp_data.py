"""Data movement by the command processor: P23 WRITE_DATA, P24 COPY_DATA and DMA_DATA, P25 ATOMIC_MEM."""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import AtomicMem, CopyData, DmaData, WriteData
from zinc_rt.probes.groups.cp_basic import FAULTED, NOT_FETCHED
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import POISON32, find_first_difference, make_pattern
from zinc_rt.probes.kit.probe_queue import FREE_AT, ProbeQueue
from zinc_rt.probes.outcome import T1, T2, Outcome, ProbeFailed, check, passed, symptom
from zinc_rt.probes.probe import fails, fails_like, probe, proves

FILL_BYTES = 4096
COPY_BYTES = (64 << 10) + 12
_ADD32, _CMPSWAP32, _SWAP32, _ADD64, _CMPSWAP64 = 15, 8, 7, 47, 40  # returning; +64 does not return

_SHARED = (NOT_FETCHED, FAULTED)


@probe("P23", "WRITE_DATA", (T1, T2), hazard=1, needs=("P20",))
@proves(
    "the CP writes dwords to the given address",
    passes_when="1 and 8 dwords exact, with and without a constant address",
)
@fails_like(*_SHARED)
@fails(
    symptom("nothing-written"),
    "dst_sel: this chip uses a value other than 5 for memory",
    "compare the packet's layout with the chip's headers",
)
@fails(
    symptom("wrong-data"),
    "an unaligned address was rounded down, or addr_incr is interpreted differently",
    "see dwords",
)
def probe_write_data(c: ProbeContext) -> Outcome:
    queue = c.queue()
    va, index = queue.memory.gpu_va, FREE_AT
    words = tuple(0x1111_0000 + i for i in range(8))
    packets = [
        WriteData(va + index, (0x5EED_0001,), wr_confirm=1),
        WriteData(va + index + 64, words, wr_confirm=1),
        WriteData(va + index + 128, words, wr_confirm=1, same_address=1),
    ]
    queue.finish(packets, "WRITE_DATA")
    memory = queue.memory
    expect_dwords(queue, index, (0x5EED_0001, POISON32), "one dword")
    expect_dwords(queue, index + 64 - 4, (POISON32, *words, POISON32), "eight dwords")
    expect_dwords(queue, index + 128, (words[-1], POISON32), "eight dwords to one address")
    return passed(written_dw=1 + 8 + 8, bytes=memory.size_bytes)


def expect_dwords(queue: ProbeQueue, offset: int, want: tuple[int, ...], what: str) -> None:
    got = tuple(queue.memory.u32(offset + 4 * i) for i in range(len(want)))
    if got == want:
        return
    untouched = all(item == POISON32 for item in got)
    word = "nothing-written" if untouched else "wrong-data"
    location = next(i for i, (a, b) in enumerate(zip(got, want, strict=True)) if a != b)
    raise ProbeFailed(
        word,
        f"{what}: dword {location} holds {got[location]:#x}, not {want[location]:#x}",
        measure={"got": [hex(item) for item in got], "want": [hex(item) for item in want]},
        evidence=queue.collect_evidence(),
    )


@probe("P24", "COPY_DATA, DMA_DATA", (T1, T2), hazard=1, needs=("P23",))
@proves(
    "the CP copies and fills without a shader",
    passes_when=f"32 and 64 bits, immediate, clock; DMA of {COPY_BYTES} bytes and a fill of {FILL_BYTES}, to the "
    "byte",
)
@fails_like(*_SHARED)
@fails(
    symptom("nothing-written", "wrong-data"),
    "src_sel (2 is memory, 1 is obsolete), the width of byte_count, or DMA not waited for",
    "DMA runs asynchronously to the CP: a fence waits for it, rptr does not",
)
def probe_copies(c: ProbeContext) -> Outcome:
    queue = c.queue()
    va, index = queue.memory.gpu_va, FREE_AT
    queue.memory.put64(index, 0x0123_4567_89AB_CDEF)
    packets: list[Packet] = [
        CopyData(va + index, va + index + 16, wr_confirm=1),
        CopyData(va + index, va + index + 32, count_sel=1, wr_confirm=1),
        CopyData(0xFEED_F00D, va + index + 48, src_sel=5, wr_confirm=1),
        CopyData(0, va + index + 64, src_sel=9, count_sel=1, wr_confirm=1),
    ]
    queue.finish(packets, "COPY_DATA")
    expect_dwords(queue, index + 16, (0x89AB_CDEF, POISON32), "memory to memory, 32 bits")
    expect_dwords(queue, index + 32, (0x89AB_CDEF, 0x0123_4567, POISON32), "memory to memory, 64 bits")
    expect_dwords(queue, index + 48, (0xFEED_F00D, POISON32), "immediate to memory")
    clock = queue.memory.u64(index + 64)
    check(clock not in (0, POISON32 << 32 | POISON32), "wrong-data", f"the clock copied is {clock:#x}")

    source, target = c.memory(COPY_BYTES, "dma source"), c.memory(COPY_BYTES, "dma target")
    want = make_pattern(COPY_BYTES, 7)
    source.put(0, want)
    target.poison()
    queue.finish([DmaData(source.gpu_va, target.gpu_va, COPY_BYTES, raw_wait=0)], "DMA_DATA copy")
    bad = find_first_difference(target.read(0, COPY_BYTES), want)
    check(bad is None, "wrong-data", f"DMA_DATA copy of {COPY_BYTES} bytes differs from byte {bad} on")
    after = target.read(COPY_BYTES, 4)
    check(after == POISON32.to_bytes(4, "little"), "wrong-data", "DMA_DATA copied beyond its end")
    target.poison()
    queue.finish([DmaData(0xA5A5_5A5A, target.gpu_va, FILL_BYTES, src_sel=2)], "DMA_DATA fill")
    bad = find_first_difference(target.read(0, FILL_BYTES), 0xA5A5_5A5A.to_bytes(4, "little") * (FILL_BYTES // 4))
    check(bad is None, "wrong-data", f"DMA_DATA fill of {FILL_BYTES} bytes differs from byte {bad} on")
    check(target.u32(FILL_BYTES) == POISON32, "wrong-data", "DMA_DATA filled beyond its end")
    return passed(copied_bytes=COPY_BYTES, filled_bytes=FILL_BYTES)


@probe("P25", "ATOMIC_MEM", (T1, T2), hazard=1, needs=("P24",))
@proves(
    "atomics of 32 and 64 bits work in VRAM and in host memory",
    passes_when="add, swap, compare-and-swap, with and without return: every result correct",
)
@fails_like(*_SHARED)
@fails(
    symptom("gtt-atomics"),
    "the path to host memory has no PCIe atomics (root complex or a switch)",
    "another slot; `lspci -vv | grep -i atomic`; until then no atomics on host memory",
)
@fails(symptom("wrong-data"), "the operation codes differ on this chip", "see the result in the message")
def probe_atomics(c: ProbeContext) -> Outcome:
    queue = c.queue()
    notes = []
    for placement in (Placement.VRAM, Placement.GTT):
        buffer = c.transport.alloc(4096, placement, f"atomics in {placement.value}")
        c.side.settle()
        wrong = _run_atomics(queue, buffer.gpu_va)
        if wrong and placement is Placement.GTT:
            raise ProbeFailed("gtt-atomics", f"in {placement.value}: {wrong}; in VRAM all were correct")
        check(not wrong, "wrong-data", f"in {placement.value}: {wrong}")
        notes.append(placement.value)
    return passed(checked=len(_EXPECTED), placements=" ".join(notes))


# offset, bits, wanted afterwards; the packets are below
_EXPECTED = (
    (0, 32, 105),
    (8, 64, (1 << 33) + 5),
    (16, 32, 77),
    (20, 32, 20),
    (24, 64, 9),
    (32, 32, 300),
    (40, 64, 44),
)


def _run_atomics(queue: ProbeQueue, va: int) -> str:
    """Return the wrong values, empty if all are right. The CP copies the values, because VRAM is not mapped by
    the host."""
    start = {0: 100, 8: 1 << 33, 16: 7, 20: 20, 24: 8, 32: 299, 40: 4}

    def setup_packets() -> Iterable[Packet]:
        for offset, bits, _ in _EXPECTED:
            value = start[offset]
            data = (value & 0xFFFFFFFF, value >> 32) if bits == 64 else (value,)
            yield WriteData(va + offset, data, wr_confirm=1)

    queue.finish(setup_packets(), "atomics' start")
    queue.finish(
        [
            AtomicMem(va, 5, _ADD32 + 64),
            AtomicMem(va + 8, 5, _ADD64 + 64),
            AtomicMem(va + 16, 77, _CMPSWAP32 + 64, compare=7),
            AtomicMem(va + 20, 77, _CMPSWAP32 + 64, compare=7),
            AtomicMem(va + 24, 9, _CMPSWAP64 + 64, compare=8),
            AtomicMem(va + 32, 1, _ADD32),
            AtomicMem(va + 40, 44, _SWAP32 + 32),
        ],
        "atomics",
    )
    base = queue.memory.gpu_va + FREE_AT + 4096
    queue.finish(
        [
            CopyData(va + offset, base + offset, count_sel=int(bits == 64), wr_confirm=1)
            for offset, bits, _ in _EXPECTED
        ],
        "atomics' results",
    )
    for offset, bits, want in _EXPECTED:
        position = FREE_AT + 4096 + offset
        got = queue.memory.u64(position) if bits == 64 else queue.memory.u32(position)
        if got != want:
            return f"the {bits} bits at {offset} are {got}, not {want}"
    return ""
