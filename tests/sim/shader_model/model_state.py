"""What a wave of the model holds, and how operands read and write it.

VGPRs are uint32 [256, lanes], SGPRs Python integers by source code (0 to 127). Reading an operand gives raw bits;
what they mean is the instruction's business.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from zinc_rt.isa import Kind, Operand

Array = np.ndarray
VCC, M0, EXEC, NULL = 106, 125, 126, 124
SHARED_APERTURE, PRIVATE_APERTURE = 0x0001_0000, 0x0002_0000  # bits 63:32
UNSET = 0xA5A5_0000  # what registers hold that nobody wrote
_APERTURES = {
    235: (SHARED_APERTURE << 32, 32), 236: (SHARED_APERTURE << 32 | 0xFFFF_FFFF, 0),
    237: (PRIVATE_APERTURE << 32, 32), 238: (PRIVATE_APERTURE << 32 | 0xFFFF_FFFF, 0),
}  # fmt: skip
_F32 = {240: 0x3F000000, 242: 0x3F800000, 244: 0x40000000, 246: 0x40800000}
_F16 = {240: 0x3800, 242: 0x3C00, 244: 0x4000, 246: 0x4400}
_F64 = {240: 0x3FE0 << 48, 242: 0x3FF0 << 48, 244: 0x4000 << 48, 246: 0x4010 << 48}
INLINE = {
    16: {**_F16, **{code + 1: bits | 1 << 15 for code, bits in _F16.items()}, 248: 0x3118},
    32: {**_F32, **{code + 1: bits | 1 << 31 for code, bits in _F32.items()}, 248: 0x3E22F983},
    64: {**_F64, **{code + 1: bits | 1 << 63 for code, bits in _F64.items()}, 248: 0x3FC45F306DC9C882},
}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class ModelWave:
    """One wave. `lanes` is EXEC as booleans, kept in sync with s[126:127]."""

    def __init__(self, width: int, threads: int) -> None:
        self.width = width
        self.v = np.empty((256, width), np.uint32)
        self.v[:] = (UNSET + np.arange(256, dtype=np.uint32))[:, None]
        self.s = [UNSET | 0x100 | i for i in range(128)]
        self.s[NULL] = 0
        self.scc = 0
        self.mode = 0xF0
        self.numbers = np.arange(width)
        self.lanes = np.zeros(width, bool)
        self.full = False
        self.set_exec((1 << threads) - 1)
        self.scratch = np.zeros((width, 0), np.uint8)
        self.group: Any = None
        self.signalled: int | None = None
        self.hardware: dict[int, int] = {}

    def set_exec(self, bits: int) -> None:
        self.s[EXEC], self.s[EXEC + 1] = bits & 0xFFFF_FFFF, bits >> 32
        self.refresh_lanes()

    def refresh_lanes(self) -> None:
        self.lanes = unpack_mask(self.exec_bits(), self.width)
        self.full = bool(self.lanes.all())

    def exec_bits(self) -> int:
        return self.s[EXEC] | (self.s[EXEC + 1] << 32 if self.width == 64 else 0)

    def write_s(self, index: int, value: int) -> None:
        if index == NULL:
            return
        self.s[index] = value & 0xFFFF_FFFF
        if index >= EXEC:
            self.refresh_lanes()

    def mask(self, index: int) -> int:
        """The lane mask in an SGPR (pair)."""
        if index == NULL:
            return 0
        return self.s[index] | (self.s[index + 1] << 32 if self.width == 64 else 0)

    def write_mask(self, index: int, bits: int) -> None:
        self.write_s(index, bits)
        if self.width == 64 and index != NULL:
            self.write_s(index + 1, bits >> 32)

    def write_v(self, index: int, value: Array, where: Array | None = None) -> None:
        """uint32 [lanes] into the lanes that EXEC (or `where`) has."""
        if where is None:
            if self.full:
                self.v[index] = value
                return
            where = self.lanes
        np.copyto(self.v[index], value, where=where)


def unpack_mask(bits: int, width: int) -> Array:
    return np.unpackbits(np.frombuffer(struct.pack("<Q", bits), np.uint8), bitorder="little")[:width].astype(bool)


def pack_mask(mask: Array) -> int:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def register_code(operand: Operand) -> int:
    """Return the number of an SGPR operand in encodings."""
    return operand.index + 108 if operand.kind is Kind.TTMP else operand.index


def constant_value(operand: Operand, bits: int, *, is_float: bool = False, signed: bool = False) -> int | None:
    """Return the value of a constant operand for a source of `bits` bits, None for registers. A literal dword in
    64 bits is the upper half of a float, sign-extended for a signed operation, zero-extended otherwise (manual
    4.1).
    """
    mask = (1 << bits) - 1
    if operand.kind is Kind.INTEGER or operand.kind is Kind.IMMEDIATE:
        return int(operand.value or 0) & mask
    if operand.kind is Kind.FLOAT:
        return INLINE[bits][operand.index]
    if operand.kind is Kind.LITERAL:
        value = int(operand.value or 0)
        if bits == 64:
            return value << 32 if is_float else value - (value >> 31 << 32) & mask if signed else value
        return value & mask
    if operand.kind is Kind.SPECIAL and operand.index in _APERTURES:
        whole, shift = _APERTURES[operand.index]
        return whole if bits == 64 else whole >> shift & mask
    return None


def scalar_reader(
    operand: Operand, bits: int | None = None, *, is_float: bool = False, signed: bool = False
) -> Callable[[ModelWave], int]:
    """Return a function that reads the operand as an integer of `bits` bits, by default the size of its
    dwords.
    """
    bits = 32 * operand.width if bits is None else bits
    fixed = constant_value(operand, bits, is_float=is_float, signed=signed) if bits <= 64 else None
    if fixed is not None:
        return lambda wave: fixed
    if operand.kind is Kind.SPECIAL and operand.index == 253:
        return lambda wave: wave.scc
    if operand.kind is Kind.SPECIAL and operand.index == 251:
        return lambda wave: int(wave.mask(VCC) == 0)
    if operand.kind is Kind.SPECIAL and operand.index == 252:
        return lambda wave: int(wave.exec_bits() == 0)
    code = register_code(operand)
    if code == NULL:
        return lambda wave: 0
    if code > 127:
        raise NotImplementedError(f"unsupported scalar source {operand.text}")
    if bits <= 32:
        mask = (1 << bits) - 1
        return lambda wave: wave.s[code] & mask
    if bits == 64:
        return lambda wave: wave.s[code] | wave.s[code + 1] << 32
    return lambda wave: sum(wave.s[code + i] << 32 * i for i in range(bits // 32))


def scalar_writer(operand: Operand) -> Callable[[ModelWave, int], None]:
    code, width = register_code(operand), operand.width
    if code == NULL:
        return lambda wave, value: None
    if width == 1:
        return lambda wave, value: wave.write_s(code, value)

    def write(wave: ModelWave, value: int) -> None:
        for i in range(width):
            wave.s[code + i] = value >> 32 * i & 0xFFFF_FFFF
        if code + width > EXEC:
            wave.refresh_lanes()

    return write


def vector_reader(
    operand: Operand, bits: int, width: int, *, is_float: bool = False, signed: bool = False, high: int = 0
) -> Callable[[ModelWave], Array]:
    """Return a function that reads the operand as unsigned [lanes] of `bits` bits; `high`: the upper half for 16
    bits.
    """
    kind = UNSIGNED[bits]
    index = operand.index
    if operand.kind is Kind.VGPR:
        if "Invalid register" in operand.text and bits == 16:  # the short encodings' v128 up are upper halves
            index, high = index & 127, 1
        if operand.half is not None:
            high = operand.half
        if bits == 32:
            return lambda wave: wave.v[index]
        if bits == 16:
            shift = np.uint32(16 * high)
            return lambda wave: (wave.v[index] >> shift).astype(np.uint16)
        if bits == 8:
            return lambda wave: wave.v[index].astype(np.uint8)
        return lambda wave: wave.v[index] | wave.v[(index + 1) & 255].astype(np.uint64) << np.uint64(32)
    fixed = constant_value(operand, bits, is_float=is_float, signed=signed)
    if fixed is not None:
        if bits == 16 and high:  # of a float constant the upper half is 0, of an integer its sign
            fixed = 0 if operand.kind is Kind.FLOAT else (constant_value(operand, 32) or 0) >> 16
        values = np.full(width, fixed, kind)
        return lambda wave: values
    if bits == 64 and operand.width == 1:
        raise NotImplementedError(f"64 bits of {operand.text}")
    read = scalar_reader(operand, 64 if bits == 64 else 32)
    shift_bits, mask = (16 * high, 0xFFFF) if bits == 16 else (0, (1 << bits) - 1)
    return lambda wave: np.full(width, read(wave) >> shift_bits & mask, kind)


SIGN = {bits: UNSIGNED[bits](1 << bits - 1) for bits in (16, 32, 64)}


def apply_modifiers(
    read: Callable[[ModelWave], Array], bits: int, negate: bool, absolute: bool
) -> Callable[[ModelWave], Array]:
    """Apply the float modifiers as bit operations."""
    sign = SIGN[bits]
    if absolute and negate:
        return lambda wave: read(wave) | sign
    if absolute:
        return lambda wave: read(wave) & ~sign
    return (lambda wave: read(wave) ^ sign) if negate else read
