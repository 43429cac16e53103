"""What PM4 costs the host: building a packet, decoding, linting and disassembling a stream.

    pytest perf/bench_pm4.py -n 0 --benchmark-enable --benchmark-sort=mean

Building is the constructor and `words`, on the fields a decode loop would set. The goal is 2 µs a packet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zinc_rt.pm4 import Generation, Packet, Sh, decode_stream
from zinc_rt.pm4.disassemble import disassemble
from zinc_rt.pm4.lint import lint
from zinc_rt.pm4.packets import (
    PACKETS,
    AcquireMem,
    DispatchDirect,
    DispatchIndirect,
    EventWrite,
    HdpFlush,
    IndirectBuffer,
    Nop,
    ProtectedFenceSignal,
    ReleaseMem,
    SetShReg,
    WaitRegMem,
    WaitRegMem64,
    WriteData,
)

VA = 0x7F12_3456_7800
G12 = Generation.GFX12

USED: dict[str, Callable[[], Packet]] = {  # the packets of a token's replay, as the ring builds them
    "acquire_mem": lambda: AcquireMem(0x4181),
    "dispatch_direct": lambda: DispatchDirect(4, 1, 1, 0x8005),
    "dispatch_indirect": lambda: DispatchIndirect(VA, 0x8005),
    "event_write": lambda: EventWrite(7, 4),
    "hdp_flush": lambda: HdpFlush(),
    "indirect_buffer": lambda: IndirectBuffer(VA, 4096, inherit_vmid=1),
    "nop": lambda: Nop(),
    "protected_fence_signal": lambda: ProtectedFenceSignal(),
    "release_mem": lambda: ReleaseMem(VA, 7, 0x600),
    "set_sh_reg": lambda: SetShReg(Sh.USER_DATA_0, (1, 2)),
    "set_sh_reg_8": lambda: SetShReg(Sh.START_X, (0, 0, 0, 64, 1, 1, 0, 0)),
    "wait_reg_mem": lambda: WaitRegMem(VA, 1),
    "wait_reg_mem64": lambda: WaitRegMem64(VA, 1),
    "write_data": lambda: WriteData(VA, (1,)),
}
SMALLEST = {"values": (0,), "pairs": ((0, 0),), "packed": ((0, 0), (0, 0)), "fences": ((0, 0),)}


@pytest.mark.parametrize("name", USED)
def test_build(benchmark: Any, name: str) -> None:
    make = USED[name]
    benchmark(lambda: make().words(G12))


@pytest.mark.parametrize("cls", [cls for cls in PACKETS if G12 in cls.ON], ids=lambda cls: cls.__name__)
def test_build_every_packet_from_every_field(benchmark: Any, cls: type[Packet]) -> None:
    """The slow way: every field given and none of them 0, where it may be."""
    fields: dict[str, Any] = {f.name: SMALLEST.get(f.place.payload, int(G12 in f.place.on)) for f in cls.FIELDS}
    benchmark(lambda: cls(**fields).words(G12))


def stream() -> list[int]:
    one = [word for make in USED.values() for word in make().words(G12)]
    return one * (16384 // len(one))


@pytest.mark.parametrize("work", [decode_stream, lint, disassemble], ids=lambda work: work.__name__)
def test_read_a_stream(benchmark: Any, work: Callable[..., Any]) -> None:
    words = stream()
    benchmark.extra_info["dwords"] = len(words)
    benchmark(work, words, G12)
