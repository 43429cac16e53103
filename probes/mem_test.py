"""GPU memory under stress: what is held is what was asked for, holes can be used again, nothing is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.transport import DeviceBuffer, Placement
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.probes.context import Context
from zinc_rt.probes.memory import write_and_read
from zinc_rt.probes.memory_access import Memory, first_difference, pattern
from zinc_rt.probes.probe import T1, T2, Outcome, Probe, Signature, check, passed, symptom

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4 * KIB, 12 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB + 4 * KIB)
CHURN_ROUNDS = 400
LIVE_BYTES = 64 * MIB
PIECE_BYTES = 64 * KIB
PIECES = 256
SLACK_BYTES = 8 * MIB  # page tables and others' buffers come and go meanwhile


@dataclass(frozen=True, slots=True)
class Used:
    """Bytes of each kind of memory in use, as the kernel counts them."""

    vram: int
    gtt: int


def used(c: Context) -> Used:
    """MEMORY of the render node: its own client's questions, for both tiers."""
    said = c.render.memory()
    return Used(said["vram.heap_usage"], said["gtt.heap_usage"])


def _settle(c: Context) -> None:
    transport = c.transport
    if isinstance(transport, UserqGpu):
        transport.settle()


def accounting(c: Context) -> Outcome:
    """The kernel's count rises by what is taken, and falls back to where it was."""
    _settle(c)
    measure: dict[str, Any] = {}
    for placement in (Placement.VRAM, Placement.GTT):
        before, held = used(c), c.transport.resources()
        size_bytes = 96 * MIB
        buffer = c.transport.alloc(size_bytes, placement, f"{placement.value} block")
        during = used(c)
        buffer.free()
        _settle(c)
        after = used(c)
        grew = getattr(during, placement.value) - getattr(before, placement.value)
        left = getattr(after, placement.value) - getattr(before, placement.value)
        measure |= {f"{placement.value}_grew_mib": grew >> 20, f"{placement.value}_left_kib": left >> 10}
        check(
            size_bytes <= grew <= size_bytes + SLACK_BYTES,
            "accounting",
            f"{placement.value}: {size_bytes} bytes were taken, the kernel counts {grew}",
            measure=measure,
        )
        check(abs(left) <= SLACK_BYTES, "leak", f"{placement.value}: {left} bytes more in use after giving back")
        check(c.transport.resources() == held, "leak", f"held {c.transport.resources()}, before {held}")
    return passed(**measure)


def fragmentation(c: Context) -> Outcome:
    """Every other piece given back, the holes filled again with smaller ones; neighbours keep their content."""
    before = c.transport.resources()
    pieces = [c.memory(PIECE_BYTES, f"piece {i}") for i in range(PIECES)]
    for i, piece in enumerate(pieces):
        piece.put(0, pattern(KIB, i))
    for piece in pieces[1::2]:
        piece.free()
    half = [c.memory(PIECE_BYTES // 2, f"half {i}") for i in range(PIECES)]
    large = c.memory(16 * MIB, "large")
    large.put(0, pattern(KIB, 99))
    for i, piece in enumerate(half):
        piece.put(0, pattern(KIB, 1000 + i))
    for name, group, first, step in (("piece", pieces[0::2], 0, 2), ("half", half, 1000, 1)):
        for i, piece in enumerate(group):
            bad = first_difference(piece.read(0, KIB), pattern(KIB, first + step * i))
            check(bad is None, "wrong-data", f"{name} {i} changed while others came and went, from byte {bad}")
    ranges = sorted((each.gpu_va, each.size_bytes) for each in (*pieces[0::2], *half, large))
    overlap = [hex(b[0]) for a, b in pairwise(ranges) if a[0] + a[1] > b[0]]
    check(not overlap, "overlap", f"buffers overlap at {', '.join(overlap[:4])}")
    for each in (*pieces[0::2], *half, large):
        each.free()
    _settle(c)
    check(c.transport.resources() == before, "leak", f"held {c.transport.resources()}, before {before}")
    return passed(pieces=PIECES, refilled=len(half))


def churn(c: Context) -> Outcome:
    """Buffers of all sizes and kinds made and given back in random order; each keeps its own pattern meanwhile."""
    dice = random.Random(1)
    before, counted = c.transport.resources(), used(c)
    live: list[tuple[Memory, bytes]] = []
    made = refused = 0
    kinds = (Placement.GTT, Placement.GTT_CACHED, Placement.VRAM_BAR)
    for number in range(CHURN_ROUNDS):
        room = LIVE_BYTES - sum(each.size_bytes for each, _ in live)
        size_bytes = dice.choice(SIZES)
        if size_bytes <= room and (not live or dice.random() < 0.6):
            try:
                memory = c.memory(size_bytes, f"churn {number}", dice.choice(kinds), fallback=Placement.GTT)
            except DriverError:
                refused += 1
                continue
            want = pattern(256, number)
            memory.put(memory.size_bytes - 256, want)
            live.append((memory, want))
            made += 1
        elif live:
            _give_back(live.pop(dice.randrange(len(live))))
    for each in live:
        _give_back(each)
    _settle(c)
    after = c.transport.resources()
    check(after == before, "leak", f"held {after}, before {before}")
    now = used(c)
    left = now.vram - counted.vram + now.gtt - counted.gtt
    check(abs(left) <= SLACK_BYTES, "leak", f"{left} bytes more in use after {made} buffers")
    return passed(made=made, refused=refused, left_kib=left >> 10)


def _give_back(item: tuple[Memory, bytes]) -> None:
    memory, want = item
    got = memory.read(memory.size_bytes - 256, 256)
    check(got == want, "wrong-data", f"{memory.buffer.name} in {memory.buffer.placement.value} lost its content")
    memory.free()


def exhaustion(c: Context) -> Outcome:
    """Taken until the kernel says no: ENOMEM, no crash, everything usable afterwards."""
    total = c.render.memory()["vram.usable_heap_size"]
    block = max(64 * MIB, total // 16)
    before = c.transport.resources()
    taken: list[DeviceBuffer] = []
    end = ""
    try:
        while len(taken) < 64:
            taken.append(c.transport.alloc(block, Placement.VRAM, f"block {len(taken)}"))
            if len(taken) % 4 == 0:
                _settle(c)
    except DriverError as error:
        end = error.args[0].partition("\n")[0]
        check(error.errno == 12, "wrong-errno", f"the end of VRAM is {end}, not ENOMEM")
    finally:
        count = len(taken)
        _free(taken)
        _settle(c)
    check(bool(end), "no-end", f"{count} blocks of {block} bytes were given, VRAM has {total}")
    check(count * block >= total // 2, "accounting", f"only {count} blocks of {block} bytes of {total}")
    check(c.transport.resources() == before, "leak", f"held {c.transport.resources()}, before {before}")
    memory = c.memory(MIB, "afterwards")
    write_and_read(memory, "after VRAM was full")
    memory.free()
    return passed(blocks=count, block_mib=block >> 20)


def _free(buffers: list[DeviceBuffer]) -> None:
    while buffers[-1:]:
        buffers.pop().free()


def _probe(number: int, title: str, passes_when: str, run: Callable[[Context], Outcome], proves: str) -> Probe:
    return Probe(f"M{number:02}", title, (T1, T2), 0, proves, passes_when, run, signatures=_KNOWN, seconds=120.0)


_KNOWN = (
    Signature(
        symptom("leak"),
        "memory or a kernel object is not given back",
        "run it again alone on this GPU: another client's memory is counted too; where it repeats, please "
        "report it",
    ),
    Signature(
        symptom("accounting"),
        "the kernel counts otherwise, or another client took or gave back memory meanwhile",
        "close other programs that use this GPU and run it again",
    ),
    Signature(
        symptom("wrong-data", "overlap"),
        "two buffers share memory, or pages moved under a mapping",
        "`dmesg | grep -iE 'amdgpu|iommu'`; please report kernel and message",
    ),
    Signature(
        symptom("wrong-errno", "no-end"), "this kernel overcommits VRAM", "note the kernel; nothing depends on it"
    ),
)

PROBES = (
    _probe(
        1,
        "accounting",
        "the kernel's count follows 96 MiB of VRAM and GTT up and down",
        accounting,
        "counts are true",
    ),
    _probe(
        2,
        "fragmentation",
        f"{PIECES} pieces, holes refilled, no overlap, no content lost",
        fragmentation,
        "holes are usable",
    ),
    _probe(
        3, "churn", f"{CHURN_ROUNDS} random steps, each buffer keeps its pattern", churn, "nothing leaks or mixes"
    ),
    _probe(
        4, "exhaustion", "ENOMEM at the end of VRAM, and all usable afterwards", exhaustion, "the end is orderly"
    ),
)
