"""SDMA packets of versions 6 and 7 that the simulated engine supports, as data.

Sources: Linux drivers/gpu/drm/amd/amdgpu/sdma_v6_0_0_pkt_open.h (layouts), sdma_v6_0.c and sdma_v7_0.c (use; on
version 7 a copy with CPV set has an eighth dword). Op codes and sub-opcodes: soc21_enum.h's SDMA_OP_*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zinc_rt.pm4.generation import Generation

NOP, COPY, WRITE, INDIRECT, FENCE, TRAP, POLL_REGMEM = 0, 1, 2, 4, 5, 6, 8
COND_EXE, ATOMIC, CONST_FILL, TIMESTAMP, GCR_REQ = 9, 10, 11, 13, 17
KERNEL_ONLY = {12: "PTEPDE", 14: "SRBM_WRITE", 15: "PRE_EXE", 16: "GPUVM_INV"}

LINEAR, SUB_WINDOW = 0, 4
GET_GLOBAL_TIMESTAMP = 2
USER_GCR = 1
ROCR_HDP_FLUSH = (POLL_REGMEM, 0, 0x80000000, 0, 0, 0)  # sdma_registers.h of ROCr: "no parameters"
CPV = 1 << 19


@dataclass(frozen=True, slots=True)
class SdmaRow:
    """`dwords` computes the length from the header and the available dwords after it (-1: too few)."""

    name: str
    dwords: Callable[[Sequence[int]], int]
    header_bits: int  # bits of the header with a meaning, opcode and sub-opcode apart


def _make_fixed_length(count: int) -> Callable[[Sequence[int]], int]:
    return lambda words: count


def _nop_length(words: Sequence[int]) -> int:
    return 1 + (words[0] >> 16 & 0x3FFF)


def _copy_length(words: Sequence[int]) -> int:
    return 8 if words[0] & CPV else 7


def _write_length(words: Sequence[int]) -> int:
    return 4 + (words[3] & 0xFFFFF) + 1 if len(words) > 3 else -1


PACKETS: Mapping[tuple[int, int], SdmaRow] = {  # (op, sub-op)
    (NOP, 0): SdmaRow("NOP", _nop_length, 0x3FFF0000),
    (COPY, LINEAR): SdmaRow("COPY_LINEAR", _copy_length, CPV),
    (COPY, SUB_WINDOW): SdmaRow("COPY_LINEAR_SUB_WINDOW", _make_fixed_length(13), 0xE0000000),
    (WRITE, LINEAR): SdmaRow("WRITE_LINEAR", _write_length, 0),
    (INDIRECT, 0): SdmaRow("INDIRECT", _make_fixed_length(6), 0xF0000),
    (FENCE, 0): SdmaRow("FENCE", _make_fixed_length(4), 0x3DF0000),
    (TRAP, 0): SdmaRow("TRAP", _make_fixed_length(2), 0),
    (POLL_REGMEM, 0): SdmaRow("POLL_REGMEM", _make_fixed_length(6), 0xF4000000),
    (COND_EXE, 0): SdmaRow("COND_EXE", _make_fixed_length(5), 0),
    (ATOMIC, 0): SdmaRow("ATOMIC", _make_fixed_length(8), 0xFE010000),
    (CONST_FILL, 0): SdmaRow("CONST_FILL", _make_fixed_length(5), 0xC0000000),
    (TIMESTAMP, GET_GLOBAL_TIMESTAMP): SdmaRow("TIMESTAMP_GET_GLOBAL", _make_fixed_length(3), 0),
    (GCR_REQ, 0): SdmaRow("GCR_REQ", _make_fixed_length(5), 0),
    (GCR_REQ, USER_GCR): SdmaRow("GCR_REQ_USER", _make_fixed_length(5), 0),
}


@dataclass(frozen=True, slots=True)
class WindowSide:
    """One side of a sub-window copy: the address of its first element, and the distances of rows and slices, in
    bytes."""

    va: int
    pitch_bytes: int
    slice_bytes: int


@dataclass(frozen=True, slots=True)
class WindowCopy:
    """A box of bytes to copy: `slices` times `rows` times `row_bytes`."""

    source: WindowSide
    destination: WindowSide
    row_bytes: int
    rows: int
    slices: int


def read_window(words: Sequence[int], generation: Generation) -> WindowCopy:
    """Read COPY_LINEAR_SUB_WINDOW. Its fields count elements; pitches and sizes are stored less 1.

    Version 7 has wider fields: ROCR-Runtime sdma_registers.h, SDMA_PKT_COPY_LINEAR_RECT and _GFX12.
    """
    shift = words[0] >> 29
    xy_mask, pitch_shift, z_mask = (0x3FFF, 13, 0x7FF) if generation is Generation.GFX11 else (0xFFFF, 16, 0x3FFF)

    def read_side(first: int) -> WindowSide:
        place, depth, slice_pitch = words[first + 2 : first + 5]
        pitch_bytes = (depth >> pitch_shift) + 1 << shift
        slice_bytes = slice_pitch + 1 << shift
        va = (words[first] | words[first + 1] << 32) + ((place & xy_mask) << shift)
        va += (place >> 16 & xy_mask) * pitch_bytes + (depth & z_mask) * slice_bytes
        return WindowSide(va, pitch_bytes, slice_bytes)

    row_bytes, rows = (words[11] & xy_mask) + 1 << shift, (words[11] >> 16 & xy_mask) + 1
    return WindowCopy(read_side(1), read_side(6), row_bytes, rows, (words[12] & z_mask) + 1)


def find_length(header: int) -> int:
    """Return the dwords of the packet to show in a report, from its header alone."""
    row = PACKETS.get((header & 0xFF, header >> 8 & 0xFF))
    if row is None:
        return 1
    count = row.dwords((header,))
    return 4 if count < 0 else count
