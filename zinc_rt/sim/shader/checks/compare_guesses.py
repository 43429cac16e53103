"""Detection of plain loads that only supply the expected value of a compare-and-swap.

Compilers expand an atomic operation without hardware support into a plain load, a computation, and a
compare-and-swap with the loaded value (LLVM's AtomicExpandPass). A stale value only makes the swap fail, so race
detection treats such a load as atomic.

Values are followed through moves, scratch (unoptimised code keeps the loaded value and the address there) and
additions of a constant to an address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zinc_rt.isa import Instruction, Kind, Operand, Target
from zinc_rt.isa.control_flow import Block, Flow
from zinc_rt.isa.effects import NULL, count_written_operands, effects, operand_registers

_LOADS = {f"{space}_load_b{bits}": bits for space in ("global", "flat", "ds", "s") for bits in (32, 64)}
_SWAPS = {
    **{f"{space}_atomic_cmpswap_b{bits}": bits for space in ("global", "flat") for bits in (32, 64)},
    **{f"ds_cmpstore_{returns}b{bits}": bits for returns in ("", "rtn_") for bits in (32, 64)},
}
_MOVES = {"v_mov_b32": 1, "v_dual_mov_b32": 1, "s_mov_b32": 1, "s_mov_b64": 2}  # name: dwords
_SCRATCH_WORDS = {"b32": 1, "b64": 2, "b96": 3, "b128": 4}

Value = tuple[Any, ...]
"""A symbolic dword: ("number", n), ("initial", register), ("written", pc, word), ("loaded", pc, dword),
("sum", augend, addend, carry) or ("carry", augend, addend)."""
Place = tuple[str, int, tuple[Value, ...]]
"""An address: (space, offset in bytes, base)."""
_ZERO: Value = ("number", 0)


def compare_guesses(graph: Flow, target: Target) -> frozenset[int]:
    """Return the pcs of loads whose value is the comparand of a later compare-and-swap at the same address. The
    path from the start of the load's block to the swap must be unique.
    """
    if not any(instruction.row.name in _SWAPS for _, instruction in graph.instructions()):
        return frozenset()
    return frozenset(
        pc
        for block in graph.blocks.values()
        if any(instruction.row.name in _LOADS for _, instruction in block.instructions)
        for pc in _find_guesses(graph, block, target)
    )


def _find_guesses(graph: Flow, block: Block, target: Target) -> Iterator[int]:
    values = _PathValues()
    for pc, instruction in _iterate_path(graph, block):
        bits = _SWAPS.get(instruction.row.name, 0)
        if bits:
            compared, place = values.find_compared(instruction)
            for load_pc, loaded_place in values.loads.items():
                if place == loaded_place and compared == _list_loaded(load_pc, bits):
                    yield load_pc
        values.execute(pc, instruction, target)


def _list_loaded(pc: int, bits: int) -> tuple[Value, ...]:
    return tuple(("loaded", pc, word) for word in range(bits // 32))


class _PathValues:
    """Symbolic values of registers, and of the dwords of one frame in scratch, along a path."""

    def __init__(self) -> None:
        self.loads: dict[int, Place | None] = {}  # by pc
        self._registers: dict[int, Value] = {}
        self._frame: tuple[Value, ...] = ()  # the address operands of the last access to scratch
        self._slots: dict[int, Value] = {}  # by offset in the frame

    def read(self, operand: Operand) -> tuple[Value, ...]:
        """Return the value of each dword of an operand."""
        if operand.value is not None:
            high = -1 if operand.value < 0 else 0
            return (("number", operand.value), ("number", high))[: operand.width]
        first = _find_first_register(operand)
        registers = range(first, first + operand.width)
        return tuple(self._registers.get(register, ("initial", register)) for register in registers)

    def find_compared(self, swap: Instruction) -> tuple[tuple[Value, ...], Place]:
        """Return the comparand and the address of a compare-and-swap."""
        address, data, *rest = swap.operands[count_written_operands(swap) :]
        if swap.row.name.startswith("ds_"):
            return self.read(rest[0]), self._find_place(swap, [address])
        return self.read(data)[data.width // 2 :], self._find_place(swap, [address, *rest])

    def execute(self, pc: int, instruction: Instruction, target: Target) -> None:
        """Update the values after an instruction."""
        result = self._compute(pc, instruction)
        if instruction.second is not None:
            result |= self._compute(pc, instruction.second)
        if instruction.row.name.startswith(("scratch_", "flat_")) and instruction.row.unit != "load":
            self._store(instruction)
        written = effects(instruction, target).writes
        while written:
            register = written.bit_length() - 1
            self._registers[register] = result.get(register, ("written", pc, register))
            written ^= 1 << register

    def _compute(self, pc: int, instruction: Instruction) -> dict[int, Value]:
        """Return the values that an instruction writes, by register, where they are known."""
        name, operands = instruction.row.name, instruction.operands
        if name in _LOADS:
            self.loads[pc] = self._find_loaded_place(instruction)
            return _number_registers(operands[0], _list_loaded(pc, _LOADS[name]))
        if name.startswith("scratch_load_"):
            return _number_registers(operands[0], self._load(pc, instruction))
        if instruction.dpp or instruction.modifiers or any(item.negate or item.absolute for item in operands):
            return {}
        if name in _MOVES:
            return _number_registers(operands[0], self.read(operands[1]))
        if name in ("v_add_co_u32", "v_add_co_ci_u32"):
            total, carry, *addends = operands
            augend, addend, *carried = sorted((self.read(item)[0] for item in addends[:2]), key=_is_number)
            carried += [self.read(item)[0] for item in addends[2:]]
            if _is_number(augend) or not _is_number(addend) or augend[0] == "sum":
                return {}
            result = _number_registers(total, (("sum", augend, addend, *carried),))
            return result if carried else result | _number_registers(carry, (("carry", augend, addend),))
        return {}

    def _load(self, pc: int, load: Instruction) -> tuple[Value, ...]:
        """Return the dwords of a load from scratch; a later load of the same dwords returns the same values."""
        words = _SCRATCH_WORDS.get(load.row.name.rpartition("_")[2], 0)
        offset = self._select_frame(load, load.operands[1:])
        return tuple(
            self._slots.setdefault(at, ("written", pc, at)) for at in range(offset, offset + 4 * words, 4)
        )

    def _store(self, store: Instruction) -> None:
        words = _SCRATCH_WORDS.get(store.row.name.rpartition("_")[2], 0)
        if not store.row.name.startswith("scratch_store_") or not words:
            self._slots = {}
            return
        vector, data, scalar = store.operands
        offset = self._select_frame(store, (vector, scalar))
        self._slots |= zip(range(offset, offset + 4 * words, 4), self.read(data), strict=True)

    def _select_frame(self, access: Instruction, address: Sequence[Operand]) -> int:
        """Return the offset in the frame of an access. Forget the slots if it is another frame, or not aligned."""
        offset = _find_offset(access)
        frame = self._read_address(address)
        if frame != self._frame or offset % 4:
            self._frame, self._slots = frame, {}
        return offset

    def _read_address(self, address: Sequence[Operand]) -> tuple[Value, ...]:
        return tuple(value for operand in address if operand.kind is not Kind.NAME for value in self.read(operand))

    def _find_place(self, access: Instruction, address: Sequence[Operand]) -> Place:
        """Return the address of an access. An addend of the base is part of the offset, and a VGPR offset of 0 is
        omitted.
        """
        space = access.row.name.partition("_")[0]
        offset, base = _find_offset(access), self._read_address(address)
        if len(base) == 3 and base[0] == _ZERO:
            base = base[1:]
        if len(base) == 2 and base[0][0] == "sum":
            _, low, addend = base[0]
            if base[1][0] == "sum" and base[1][2:] == (_ZERO, ("carry", low, addend)):
                base = (low, base[1][1])
                offset += addend[1]
        return space, offset, base

    def _find_loaded_place(self, load: Instruction) -> Place | None:
        """Return the address of a load. That of a scalar load has the form of a global load from the same base, or
        is None if its offset is in a register.
        """
        if not load.row.name.startswith("s_"):
            return self._find_place(load, load.operands[1:])
        _, base, offset = load.operands[:3]
        is_null = offset.kind is Kind.SPECIAL and offset.index == NULL  # as LLVM 22 encodes offset 0 on gfx11
        if len(load.operands) > 3 or not (is_null or offset.kind is Kind.IMMEDIATE):
            return None
        return "global", int(offset.value or 0), self.read(base)


def _is_number(value: Value) -> bool:
    return value[0] == "number"


def _find_first_register(operand: Operand) -> int:
    registers = operand_registers(operand)
    return (registers & -registers).bit_length() - 1


def _number_registers(operand: Operand, values: Sequence[Value]) -> dict[int, Value]:
    """Return the values by the registers of an operand, which follow one another."""
    return dict(enumerate(values, _find_first_register(operand)))


def _find_offset(access: Instruction) -> int:
    offset = access.modifier("offset")
    return int(offset.value) if offset is not None and isinstance(offset.value, int) else 0


def _iterate_path(graph: Flow, block: Block) -> Iterator[tuple[int, Instruction]]:
    """Iterate over the instructions of a block and those that follow it while there is only one path."""
    seen: set[int] = set()
    while block.start not in seen:
        seen.add(block.start)
        yield from block.instructions
        if len(block.successors) != 1 or block.successors[0] not in graph.blocks:
            return
        block = graph.blocks[block.successors[0]]
