"""Stress tests of GPU memory: allocations have the requested size, holes can be reused, no contents are
lost.

VRAM is written and read by the GPU, including memory that no CPU can map; host memory by both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.transport import HOST_VISIBLE, DeviceBuffer, Placement
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.probes.groups.memory import write_and_read
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.gpu_access import GpuAccess
from zinc_rt.probes.kit.mapped_buffer import MappedBuffer, make_pattern
from zinc_rt.probes.outcome import T1, T2, Outcome, Signature, check, passed, symptom
from zinc_rt.probes.probe import Probe

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 12 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB + 4 * KIB)
CHURN_ROUNDS = 400
KINDS = (Placement.GTT, Placement.GTT_CACHED, Placement.VRAM_BAR, Placement.VRAM)
PATTERN_BYTES = 256
LIVE_BYTES = 64 * MIB
PIECE_BYTES = 64 * KIB
PIECES = 256
SLACK_BYTES = 8 * MIB  # page tables and others' buffers come and go meanwhile


@dataclass(frozen=True, slots=True)
class MemoryInUse:
    """Bytes of each kind of memory in use, as counted by the kernel."""

    vram: int
    gtt: int


def query_memory(c: ProbeContext) -> MemoryInUse:
    """Return MEMORY of the render node, queried by a separate client, for both tiers."""
    usage = c.render.memory()
    return MemoryInUse(usage["vram.heap_usage"], usage["gtt.heap_usage"])


def _wait_for_settled_memory(c: ProbeContext) -> None:
    transport = c.transport
    if isinstance(transport, UserqGpu):
        transport.settle()


def probe_accounting(c: ProbeContext) -> Outcome:
    """Check that the kernel's count rises by the allocated size, and falls back to its previous value."""
    _wait_for_settled_memory(c)
    measure: dict[str, Any] = {}
    for placement in (Placement.VRAM, Placement.GTT):
        before, held = query_memory(c), c.transport.resources()
        size_bytes = 96 * MIB
        buffer = c.transport.alloc(size_bytes, placement, f"{placement.value} block")
        during = query_memory(c)
        buffer.free()
        _wait_for_settled_memory(c)
        after = query_memory(c)
        grew = getattr(during, placement.value) - getattr(before, placement.value)
        left = getattr(after, placement.value) - getattr(before, placement.value)
        measure |= {f"{placement.value}_grew_mib": grew >> 20, f"{placement.value}_left_kib": left >> 10}
        check(
            size_bytes <= grew <= size_bytes + SLACK_BYTES,
            "accounting",
            f"{placement.value}: {size_bytes} bytes were allocated, the kernel counted {grew}",
            measure=measure,
        )
        check(abs(left) <= SLACK_BYTES, "leak", f"{placement.value}: {left} bytes more in use after the release")
        check(c.transport.resources() == held, "leak", f"held {c.transport.resources()}, before {held}")
    return passed(**measure)


def probe_fragmentation(c: ProbeContext) -> Outcome:
    """Release every other piece, fill the holes with smaller ones, and check that neighbours keep their
    contents."""
    gpu = GpuAccess(c)
    before = c.transport.resources()
    for placement in (Placement.GTT, Placement.VRAM):
        _test_fragmentation(c, gpu, placement)
    check(c.transport.resources() == before, "leak", f"held {c.transport.resources()}, before {before}")
    return passed(pieces=PIECES, refilled=PIECES, placements="gtt vram")


def _test_fragmentation(c: ProbeContext, gpu: GpuAccess, placement: Placement) -> None:
    held: dict[int, PatternedBuffer] = {}

    def take(number: int, size_bytes: int) -> None:
        held[number] = _take_buffer(c, gpu, size_bytes, placement, f"piece {number}", number)

    def give_back(number: int) -> None:
        held.pop(number).buffer.free()

    for number in range(PIECES):
        take(number, PIECE_BYTES)
    for number in range(1, PIECES, 2):
        give_back(number)
    for number in range(PIECES, 2 * PIECES):
        take(number, PIECE_BYTES // 2)
    take(2 * PIECES, 16 * MIB)
    _check(gpu, list(held.values()), "while others came and went")
    ranges = sorted((item.buffer.gpu_va, item.buffer.size_bytes) for item in held.values())
    overlap = [hex(b[0]) for a, b in pairwise(ranges) if a[0] + a[1] > b[0]]
    check(not overlap, "overlap", f"buffers overlap at {', '.join(overlap[:4])}")
    for number in list(held):
        give_back(number)
    _wait_for_settled_memory(c)


@dataclass(frozen=True, slots=True)
class PatternedBuffer:
    """A buffer with a unique pattern in its last bytes."""

    buffer: DeviceBuffer
    want: bytes

    @property
    def at(self) -> int:
        return self.buffer.gpu_va + self.buffer.size_bytes - len(self.want)


def _check(gpu: GpuAccess, held: Sequence[PatternedBuffer], when: str) -> None:
    """Check that each buffer keeps its content as read by the GPU and, if it is mapped, by the CPU."""
    for buffer, got in zip(held, gpu.gather([(buffer.at, PATTERN_BYTES) for buffer in held]), strict=True):
        name = f"{buffer.buffer.name} in {buffer.buffer.placement.value}"
        check(got == buffer.want, "wrong-data", f"{name} lost its contents {when}, as read by the GPU")
        if buffer.buffer.placement in HOST_VISIBLE:
            got = MappedBuffer(buffer.buffer).read(buffer.buffer.size_bytes - PATTERN_BYTES, PATTERN_BYTES)
            check(got == buffer.want, "wrong-data", f"{name} lost its contents {when}, as read by the CPU")


def _take_buffer(
    c: ProbeContext, gpu: GpuAccess, size_bytes: int, placement: Placement, name: str, seed: int
) -> PatternedBuffer:
    """Allocate a buffer with its pattern, written by the GPU in VRAM and in every second buffer elsewhere,
    otherwise by the CPU.
    """
    fallback = Placement.GTT if placement is Placement.VRAM_BAR else None
    buffer = c.transport.alloc(size_bytes, placement, name, fallback=fallback)
    held = PatternedBuffer(buffer, make_pattern(PATTERN_BYTES, seed))
    c.side.settle()
    if buffer.placement not in HOST_VISIBLE or seed % 2:
        gpu.write(held.at, held.want)
    else:
        MappedBuffer(buffer).put(buffer.size_bytes - PATTERN_BYTES, held.want)
    return held


def probe_churn(c: ProbeContext) -> Outcome:
    """Allocate and release buffers of all sizes and kinds in random order; each must keep its pattern."""
    dice = random.Random(1)
    gpu = GpuAccess(c)
    before, counted = c.transport.resources(), query_memory(c)
    live: list[PatternedBuffer] = []
    allocated = refused = 0
    for number in range(CHURN_ROUNDS):
        room = LIVE_BYTES - sum(buffer.buffer.size_bytes for buffer in live)
        size_bytes = dice.choice(SIZES)
        if size_bytes <= room and (not live or dice.random() < 0.6):
            try:
                live.append(_take_buffer(c, gpu, size_bytes, dice.choice(KINDS), f"churn {number}", number))
            except DriverError:
                refused += 1
                continue
            allocated += 1
        elif live:
            _give_back(gpu, live.pop(dice.randrange(len(live))))
    for buffer in live:
        _give_back(gpu, buffer)
    _wait_for_settled_memory(c)
    after = c.transport.resources()
    check(after == before, "leak", f"held {after}, before {before}")
    now = query_memory(c)
    left = now.vram - counted.vram + now.gtt - counted.gtt
    check(abs(left) <= SLACK_BYTES, "leak", f"{left} bytes more in use after {allocated} buffers")
    return passed(made=allocated, refused=refused, left_kib=left >> 10)


def _give_back(gpu: GpuAccess, held: PatternedBuffer) -> None:
    _check(gpu, [held], "before it was released")
    held.buffer.free()


def probe_exhaustion(c: ProbeContext) -> Outcome:
    """Allocate until the kernel rejects it: ENOMEM, no crash, everything usable afterwards.

    The GPU marks both ends of every block: two blocks over the same memory would contain the same mark.
    """
    gpu = GpuAccess(c)
    total = c.render.memory()["vram.usable_heap_size"]
    block = max(64 * MIB, total // 16)
    before = c.transport.resources()
    taken: list[DeviceBuffer] = []
    end = ""
    try:
        while len(taken) < 64:
            taken.append(c.transport.alloc(block, Placement.VRAM, f"block {len(taken)}"))
            if len(taken) % 4 == 0:
                _wait_for_settled_memory(c)
    except DriverError as error:
        end = error.args[0].partition("\n")[0]
        check(error.errno == 12, "wrong-errno", f"exhausting VRAM returned {end}, not ENOMEM")
        _wait_for_settled_memory(c)
        c.side.settle()
        marks = {va: 0x3A4B_0000 + index for index, va in enumerate(_sample_offsets(taken))}
        gpu.write_marks(marks)
        wrong = [f"{va:#x} holds {value:#x}" for va, value in gpu.find_wrong_marks(marks).items()]
        check(not wrong, "overlap", f"with VRAM full, the GPU's marks are not where it wrote them: {wrong[:3]}")
    finally:
        count = len(taken)
        _free(taken)
        _wait_for_settled_memory(c)
    check(bool(end), "no-end", f"{count} blocks of {block} bytes were allocated, VRAM has {total}")
    check(count * block >= total // 2, "accounting", f"only {count} blocks of {block} bytes of {total}")
    check(c.transport.resources() == before, "leak", f"held {c.transport.resources()}, before {before}")
    memory = c.memory(MIB, "afterwards")
    write_and_read(memory, "after VRAM was full")
    memory.free()
    return passed(blocks=count, block_mib=block >> 20, marks=len(marks))


def _sample_offsets(blocks: list[DeviceBuffer]) -> list[int]:
    """First, middle and last dword of each."""
    return [
        block.gpu_va + offset for block in blocks for offset in (0, block.size_bytes // 2, block.size_bytes - 4)
    ]


def _free(buffers: list[DeviceBuffer]) -> None:
    while buffers[-1:]:
        buffers.pop().free()


def _make_probe(
    number: int,
    title: str,
    passes_when: str,
    run: Callable[[ProbeContext], Outcome],
    proves: str,
    *,
    hazard: int = 1,
) -> Probe:
    name = f"M{number:02}"
    return Probe(name, title, (T1, T2), hazard, proves, passes_when, run, signatures=_KNOWN, seconds=120.0)


_KNOWN = (
    Signature(
        symptom("leak"),
        "memory or a kernel object is not released",
        (
            "run it again with no other program on this GPU, because other clients' memory is counted "
            "too; if it repeats, please report it"
        ),
    ),
    Signature(
        symptom("accounting"),
        "the kernel counts differently, or another client allocated or released memory meanwhile",
        "close other programs that use this GPU and run it again",
    ),
    Signature(
        symptom("wrong-data", "overlap"),
        "two buffers share memory, or pages moved while mapped",
        "`dmesg | grep -iE 'amdgpu|iommu'`; please report kernel and message",
    ),
    Signature(
        symptom("wrong-errno", "no-end"),
        "this kernel overcommits VRAM",
        "record the kernel version; nothing depends on it",
    ),
)

PROBES = (
    _make_probe(
        1,
        "accounting",
        "the kernel's count follows 96 MiB of VRAM and GTT up and down",
        probe_accounting,
        "counts are true",
        hazard=0,
    ),
    _make_probe(
        2,
        "fragmentation",
        f"{PIECES} pieces, holes refilled, no overlap, no content lost",
        probe_fragmentation,
        "holes are usable",
    ),
    _make_probe(
        3,
        "churn",
        f"{CHURN_ROUNDS} random steps, each buffer keeps its pattern, as CPU and GPU see it",
        probe_churn,
        "no leaks, no mixed contents",
    ),
    _make_probe(
        4,
        "exhaustion",
        "ENOMEM at the end of VRAM, every block is separate GPU memory, and all is usable afterwards",
        probe_exhaustion,
        "exhaustion is handled correctly",
    ),
)
