"""The DWARF 5 line program that an assembler writes for .loc: the source line of each instruction."""

from __future__ import annotations

import struct

from zinc_rt.host.errors import InputError

_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_END_SEQUENCE, _SET_ADDRESS = 1, 2


class _Reader:
    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data, self.at = data, offset

    def read_fixed(self, form: str) -> int:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def read_unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def signed(self) -> int:
        start = self.at
        value = self.read_unsigned()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> bits - 1 & 1 else value


def read_line_rows(section: bytes, source: str) -> list[tuple[int, int, int]]:
    """Return (code offset, file number, line) from .debug_line, in the program's order. Raise InputError if it is
    damaged."""
    try:
        return _read_rows(section, source)
    except (struct.error, IndexError):
        raise InputError(f"{source}: .debug_line is truncated") from None


def _read_rows(section: bytes, source: str) -> list[tuple[int, int, int]]:
    reader = _Reader(section)
    end = reader.read_fixed("I") + 4
    version = reader.read_fixed("H")
    if version != 5:
        raise InputError(f"{source}: .debug_line of DWARF {version}, expected 5")
    reader.at += 2  # address size, segment selector size
    program = reader.read_fixed("I")
    program += reader.at
    unit = reader.read_fixed("B")
    reader.at += 2  # operations an instruction, default is_stmt
    line_base, line_range, opcode_base = reader.read_fixed("b"), reader.read_fixed("B"), reader.read_fixed("B")
    lengths = [0, *(reader.read_fixed("B") for _ in range(1, opcode_base))]
    reader.at = program
    rows: list[tuple[int, int, int]] = []
    address, file, line = 0, 1, 1
    while reader.at < end:
        opcode = reader.read_fixed("B")
        if opcode >= opcode_base:
            step, more = divmod(opcode - opcode_base, line_range)
            address, line = address + step * unit, line + line_base + more
            rows.append((address, file, line))
        elif opcode == 0:
            size = reader.read_unsigned()
            after = reader.at + size
            extended = reader.read_fixed("B")
            if extended == _END_SEQUENCE:
                address, file, line = 0, 1, 1
            elif extended == _SET_ADDRESS:
                address = reader.read_fixed("Q")
            reader.at = after
        elif opcode == _COPY:
            rows.append((address, file, line))
        elif opcode == _ADVANCE_PC:
            address += reader.read_unsigned() * unit
        elif opcode == _ADVANCE_LINE:
            line += reader.signed()
        elif opcode == _SET_FILE:
            file = reader.read_unsigned()
        elif opcode == _CONST_ADD_PC:
            address += (255 - opcode_base) // line_range * unit
        elif opcode == _FIXED_ADVANCE_PC:
            address += reader.read_fixed("H")
        else:  # it does not affect lines: skip its operands
            for _ in range(lengths[opcode]):
                reader.read_unsigned()
    return rows
