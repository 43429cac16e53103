"""SDMA packets of versions 6 and 7 that the simulated engine supports, as data.

Sources: Linux drivers/gpu/drm/amd/amdgpu/sdma_v6_0_0_pkt_open.h (layouts), sdma_v6_0.c and sdma_v7_0.c (use; on
version 7 a copy with CPV set has an eighth dword). Op codes and sub-opcodes: soc21_enum.h's SDMA_OP_*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

NOP, COPY, WRITE, INDIRECT, FENCE, TRAP, POLL_REGMEM = 0, 1, 2, 4, 5, 6, 8
COND_EXE, ATOMIC, CONST_FILL, TIMESTAMP, GCR_REQ = 9, 10, 11, 13, 17
KERNEL_ONLY = {12: "PTEPDE", 14: "SRBM_WRITE", 15: "PRE_EXE", 16: "GPUVM_INV"}

LINEAR = 0
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


def find_length(header: int) -> int:
    """Return the dwords of the packet to show in a report, from its header alone."""
    row = PACKETS.get((header & 0xFF, header >> 8 & 0xFF))
    if row is None:
        return 1
    count = row.dwords((header,))
    return 4 if count < 0 else count
