"""What a packet makes the CP itself read, write or run: memory by VA, registers by absolute dword address.

A row a packet type; what shaders touch is not here. Sizes and alignments: pm4.md §3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from zinc_rt.pm4.packet import U32, Packet
from zinc_rt.pm4.packets import (
    AtomicMem,
    CondExec,
    CondIndirectBuffer,
    CondWrite,
    CopyData,
    DispatchIndirect,
    DispatchTaskStateInit,
    DmaData,
    DmaDataFillMulti,
    EventWrite,
    ExecuteIndirectV2,
    FenceWaitMulti,
    IndirectBuffer,
    IndirectBufferPasid,
    LoadShRegIndex,
    ReleaseMem,
    SetConfigReg,
    SetShReg,
    SetShRegIndex,
    SetShRegPairs,
    SetShRegPairsPacked,
    SetShRegPairsPackedN,
    SetUconfigReg,
    SetUconfigRegPairs,
    Timestamp,
    WaitRegMem,
    WaitRegMem64,
    WriteData,
)
from zinc_rt.pm4.registers import CONFIG, SH, UCONFIG, Sh, Space

AccessKind = Literal["read", "write", "execute"]


@dataclass(frozen=True, slots=True)
class Access:
    """`size_bytes` at `va`, which must be a multiple of `align`; `dword` is where in the packet it stands."""

    va: int
    size_bytes: int
    kind: AccessKind
    align: int
    dword: int


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    """A register set by a packet: absolute dword address, value, and the value's dword in the packet."""

    address: int
    value: int
    dword: int


def accesses(packet: Packet) -> tuple[Access, ...]:
    """Memory the CP touches for this packet, with the code that PGM_LO and PGM_HI point to."""
    rows = _MEMORY.get(type(packet))
    found = tuple(rows(packet)) if rows is not None else ()
    return found + tuple(_code(packet)) if type(packet) is SetShReg else found


def register_space(packet: Packet) -> Space | None:
    """The space whose registers this packet sets."""
    return _SPACES.get(type(packet))


def register_writes(packet: Packet) -> Iterator[RegisterWrite]:
    """Registers set by a SET_*_REG packet, in order."""
    space = _SPACES.get(type(packet))
    if space is None:
        return
    if isinstance(packet, SetShReg | SetShRegIndex | SetUconfigReg | SetConfigReg):
        for index, value in enumerate(packet.values):
            yield RegisterWrite(space.base + packet.register + index, value, 2 + index)
    elif isinstance(packet, SetShRegPairs | SetUconfigRegPairs):
        for index, (register, value) in enumerate(packet.writes):
            yield RegisterWrite(space.base + register, value, 2 + 2 * index)
    elif isinstance(packet, SetShRegPairsPacked | SetShRegPairsPackedN):
        for index, (register, value) in enumerate(packet.writes):
            yield RegisterWrite(space.base + register, value, 3 + 3 * (index // 2) + index % 2)


_SPACES: Mapping[type[Packet], Space] = {
    SetShReg: SH,
    SetShRegIndex: SH,
    SetShRegPairs: SH,
    SetShRegPairsPacked: SH,
    SetShRegPairsPackedN: SH,
    SetUconfigReg: UCONFIG,
    SetUconfigRegPairs: UCONFIG,
    SetConfigReg: CONFIG,
}


def _code(packet: SetShReg) -> Iterator[Access]:
    index = Sh.PGM_LO - packet.register
    if 0 <= index < len(packet.values) - 1:
        low, high = packet.values[index : index + 2]
        yield Access((low | (high & 0xFF) << 32) << 8, 4, "execute", 256, 2 + index)


def _release(p: ReleaseMem) -> Iterator[Access]:
    if p.data_sel and p.dst_sel < 2:
        size = 4 if p.data_sel == 1 else 8
        yield Access(p.address, size, "write", size, 3)


def _write_data(p: WriteData) -> Iterator[Access]:
    if p.dst_sel in (2, 5):
        yield Access(p.address, 4 if p.same_address else 4 * len(p.data), "write", 4, 2)


def _copy(p: CopyData) -> Iterator[Access]:
    size = 8 if p.count_sel else 4
    if p.src_sel in (1, 2):
        yield Access(p.src, size, "read", size, 2)
    if p.dst_sel in (2, 5):
        yield Access(p.dst, size, "write", size, 4)


def _dma(p: DmaData) -> Iterator[Access]:
    if p.src_sel in (0, 3):
        yield Access(p.src, 4 if p.src_fixed else p.byte_count, "read", 1, 2)
    if p.dst_sel in (0, 3):
        yield Access(p.dst, 4 if p.dst_fixed else p.byte_count, "write", 1, 4)


def _fill(p: DmaDataFillMulti) -> Iterator[Access]:
    if p.dma_count:
        yield Access(p.dst, (p.dma_count - 1) * p.byte_stride + p.byte_count, "write", 1, 4)


def _atomic(p: AtomicMem) -> Iterator[Access]:
    size = 8 if p.atomic & 32 else 4
    yield Access(p.address, size, "write", size, 2)


def _timestamp(p: Timestamp) -> Iterator[Access]:
    if p.enable_bottom:
        yield Access(p.bottom_address, 8, "write", 8, 2)
    if p.enable_top:
        yield Access(p.top_address, 8, "write", 8, 4)


def _cond_write(p: CondWrite) -> Iterator[Access]:
    if p.poll_space == 1:
        yield Access(p.poll_address, 4, "read", 4, 2)
    if p.write_space == 1:
        yield Access(p.write_address, 4, "write", 4, 6)


def _cond_ib(p: CondIndirectBuffer) -> Iterator[Access]:
    yield Access(p.compare_address, 8, "read", 8, 2)
    yield Access(p.address_1, 4 * p.size_1_dw, "execute", 4, 8)
    if p.mode == 2:
        yield Access(p.address_2, 4 * p.size_2_dw, "execute", 4, 11)


def _wait(p: WaitRegMem) -> Iterator[Access]:
    if p.mem_space == 1 and p.operation != 1:
        yield Access(p.address, 4, "read", 4, 2)


def _wait64(p: WaitRegMem64) -> Iterator[Access]:
    if p.mem_space == 1 and p.operation != 1:
        yield Access(p.address, 8, "read", 8, 2)


def _event(p: EventWrite) -> Iterator[Access]:
    if p.address is not None:
        yield Access(p.address, 8, "write", 8, 2)


def _fences(p: FenceWaitMulti) -> Iterator[Access]:
    for index, (va, _) in enumerate(p.fences):
        yield Access(va, 8, "read", 8, 2 + 4 * index)


def _execute_indirect(p: ExecuteIndirectV2) -> Iterator[Access]:
    if p.count_indirect:
        yield Access(p.count_address, 4, "read", 4, 2)


_MEMORY: Mapping[type[Packet], Callable[[Any], Iterator[Access]]] = {
    ReleaseMem: _release,
    WriteData: _write_data,
    CopyData: _copy,
    DmaData: _dma,
    DmaDataFillMulti: _fill,
    AtomicMem: _atomic,
    Timestamp: _timestamp,
    CondWrite: _cond_write,
    CondIndirectBuffer: _cond_ib,
    WaitRegMem: _wait,
    WaitRegMem64: _wait64,
    EventWrite: _event,
    FenceWaitMulti: _fences,
    ExecuteIndirectV2: _execute_indirect,
    CondExec: lambda p: iter((Access(p.address, 4, "read", 4, 1),)),
    DispatchIndirect: lambda p: iter((Access(p.address, 12, "read", 4, 1),)),
    DispatchTaskStateInit: lambda p: iter((Access(p.control_address, 4, "read", 256, 1),)),
    IndirectBuffer: lambda p: iter((Access(p.address, 4 * p.size_dw, "execute", 4, 1),)),
    IndirectBufferPasid: lambda p: iter((Access(p.address, 4 * p.size_dw, "execute", 4, 1),)),
    LoadShRegIndex: lambda p: iter((Access(p.address, 4 * max(1, p.num_dwords), "read", 4, 1),)),
}


def canonical(va: int) -> bool:
    """Whether a VA lies outside the hole in the middle, and above the first 64 KiB that the kernel never maps."""
    return 0x10000 <= va < 1 << 47 or 0xFFFF800000000000 <= va <= (U32 << 32 | U32)
