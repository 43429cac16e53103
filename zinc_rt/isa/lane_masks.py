"""Lane masks in scalar registers: which of them contain every lane of which others, while code is followed."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.isa.effects import EXEC, SCC, operand_registers, register_bit
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Kind, Operand

_EVERY = frozenset(range(SCC))
_NOTHING: frozenset[int] = frozenset()


@dataclass
class LaneMasks:
    """Masks of `width` registers, identified by the first. `above`: for each mask, the masks that contain all of
    its lanes.
    """

    width: int
    above: dict[int, frozenset[int]] = field(default_factory=dict)

    def copy(self) -> LaneMasks:
        return LaneMasks(self.width, dict(self.above))

    def intersect(self, other: LaneMasks) -> LaneMasks:
        """Return what holds in both."""
        both = {key: item & other.above[key] for key, item in self.above.items() if key in other.above}
        return LaneMasks(self.width, {key: item for key, item in both.items() if item})

    def step(self, instruction: Instruction, writes: int) -> bool:
        """Advance over an instruction that writes these registers. Return whether the instruction is s_or exec,
        exec, X, where X contains every lane of EXEC, so that EXEC becomes X.
        """
        written = [index for index in range(SCC) if writes >> index & 1]
        if not written:
            return False
        name, operands = instruction.row.name, instruction.operands
        restored = find_restored_mask(instruction)
        restores = restored is not None and restored in self._masks_above(EXEC)
        results: dict[int, frozenset[int]] = {}
        equal: tuple[int, int] | None = None  # a mask that becomes a copy of another
        if restores and restored is not None:
            results[EXEC], equal = self._masks_above(restored), (EXEC, restored)
        elif "_saveexec_" in name:
            first = _first_sgpr(operands[0])
            results = {first: self._masks_above(EXEC), EXEC: self._find_saveexec_result(name, operands[1])}
            equal = first, EXEC
        elif name.startswith("v_cmp_"):
            results[written[0]] = self._masks_above(EXEC)
        elif name.startswith("v_cmpx_"):
            results[EXEC] = self._masks_above(EXEC)
        elif len(operands) > 1 and operands[0].width == self.width and name.startswith("s_"):
            results[_first_sgpr(operands[0])] = self._find_result(name, operands[1:])
            if name.startswith("s_mov_b") and (source := _first_sgpr(operands[1])) >= 0:
                equal = _first_sgpr(operands[0]), source
        self._write(set(written), results, equal)
        if name.startswith(("s_and_saveexec_", "s_and_not0_saveexec_")):  # EXEC lost lanes, and the copy has them
            self.above[EXEC] = self.above.get(EXEC, _NOTHING) | {_first_sgpr(operands[0])}
        return restores

    def _write(self, written: set[int], results: dict[int, frozenset[int]], equal: tuple[int, int] | None) -> None:
        gone = written | {item - 1 for item in written} if self.width > 1 else written
        before = {key: item for key, item in self.above.items() if key not in gone}
        if equal is not None:  # masks below the one become masks below its copy
            copy, of = equal
            below = [key for key, item in before.items() if of in item] + ([of] if of not in gone else [])
        self.above = {key: item - gone for key, item in {**before, **results}.items()}
        if equal is not None:
            for key in below:
                self.above[key] = self.above.get(key, _NOTHING) | {copy}
        self.above = {key: item - {key} for key, item in self.above.items() if item - {key}}

    def _masks_above(self, mask: int) -> frozenset[int]:
        return self.above.get(mask, _NOTHING) | {mask}

    def _masks_of_operand(self, operand: Operand) -> frozenset[int]:
        if operand.kind is Kind.INTEGER and operand.value == 0:
            return _EVERY
        first = _first_sgpr(operand)
        return self._masks_above(first) if first >= 0 and operand.width == self.width else _NOTHING

    def _find_result(self, name: str, sources: tuple[Operand, ...]) -> frozenset[int]:
        masks = [self._masks_of_operand(source) for source in sources]
        if name.startswith(("s_mov_b", "s_and_not1_b")):
            return masks[0]
        if name.startswith("s_and_b"):
            return masks[0] | masks[1]
        return masks[0] & masks[1] if name.startswith(("s_or_b", "s_cselect_b")) else _NOTHING

    def _find_saveexec_result(self, name: str, source: Operand) -> frozenset[int]:
        if name.startswith("s_and_saveexec_"):
            return self._masks_above(EXEC) | self._masks_of_operand(source)
        if name.startswith("s_and_not0_saveexec_"):
            return self._masks_above(EXEC)
        return self._masks_of_operand(source) if name.startswith("s_and_not1_saveexec_") else _NOTHING


def is_exec(operand: Operand) -> bool:
    return operand.kind is Kind.SPECIAL and operand.index == EXEC


def find_restored_mask(instruction: Instruction) -> int | None:
    """Return the mask X of `s_or exec, exec, X`, else None."""
    operands = instruction.operands
    if not instruction.row.name.startswith("s_or_b") or not is_exec(operands[0]):
        return None
    rest = [_first_sgpr(operand) for operand in operands[1:] if not is_exec(operand)]
    return rest[0] if len(rest) == 1 and rest[0] >= 0 else None


def _first_sgpr(operand: Operand) -> int:
    """Return the first scalar register of an operand, -1 if it is not one."""
    result = operand_registers(operand) & (register_bit(SCC) - 1)
    return (result & -result).bit_length() - 1
