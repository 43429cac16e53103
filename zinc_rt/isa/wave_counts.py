"""Count what a wave executes, by interpreting its scalar code.

Kernels branch on kernel arguments, workgroup ids, step data and thread ids. Only those instructions are
interpreted that a branch depends on: scalar ones, and 32-bit integer vector ones. Results of others, and loads
into vector registers, are unknown. On an unknown value a branch follows `_UNKNOWN`: lanes remain active, vcc is 0.

    counter = WaveCounter(code, target_of("gfx1201"))
    counter.count((1, 0, 0), 0, memory).instructions
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.isa.control_flow import find_branch_target, find_control_flow
from zinc_rt.isa.effects import EXEC, M0, NULL, SCC, TTMP, VCC, VGPR, count_written_operands, effects, unite
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Kind, Operand
from zinc_rt.isa.target import Target

ReadDword = Callable[[int], int | None]
"""The dword at an address of scalar memory, None if unknown."""

ARGUMENTS_AT = 1 << 32  # the address of the kernel arguments, in s[0:1] at the start
MOST_RUNS = 1 << 14  # of a block by a wave; beyond them its loop is taken as endless
_WORD, _LONG = (1 << 32) - 1, (1 << 64) - 1
_Value = int | None
_Step = tuple[Instruction, tuple[int, ...]]  # and the registers that it writes
_UNKNOWN = {"scc0": False, "scc1": False, "vccz": True, "vccnz": False, "execz": False, "execnz": True}

# Floating-point operations of a lane, by the end of the name; conversions, moves and compares count as none.
_TWO = ("_fma_", "_fmac_", "_fmaak_", "_fmamk_", "_mad_", "_dot2acc_", "_dot2_")
_ONE = ("_add_f", "_sub_f", "_subrev_f", "_mul_f", "_mul_legacy_f")


@dataclass(frozen=True, slots=True)
class WaveCounts:
    """What one wave executes. `units` counts instructions by unit (report.UNITS). `load_bytes` and `store_bytes`
    are those of full waves, without LDS; `lds_bytes` those moved through LDS. `vector_flops` counts float32
    operations of full waves, `matrix_ops` multiplications and additions of WMMA and dot products by type.
    `unknown`: branches that depended on unknown values.
    """

    units: Mapping[str, int]
    load_bytes: int
    store_bytes: int
    lds_bytes: int
    vector_flops: int
    matrix_ops: Mapping[str, int]
    unknown: int = 0

    @property
    def instructions(self) -> int:
        return sum(self.units.values())


@dataclass(frozen=True, slots=True)
class _Weight:
    units: Counter[str]
    load_bytes: int
    store_bytes: int
    lds_bytes: int
    vector_flops: int
    matrix_ops: Counter[str]


class WaveCounter:
    """Counts the executions of a kernel's blocks. Raise UnsupportedError for a scalar instruction without a rule
    that a branch depends on."""

    def __init__(self, code: bytes, target: Target, entry: int = 0, user_sgprs: int = 2) -> None:
        self._flow = find_control_flow(code, target, entry)
        self._entry, self._target, self._user_sgprs = entry, target, user_sgprs
        self._needed = self._find_branch_registers()

    def count(self, group: tuple[int, int, int], wave: int, memory: ReadDword) -> WaveCounts:
        """Count one wave of a workgroup; `memory` has the kernel arguments at ARGUMENTS_AT."""
        state = _State(memory)
        x, y, z = group
        state.put(0, ARGUMENTS_AT, 2)
        if self._target.rules.ids_in_ttmp:
            state.put(TTMP + 9, x)
            state.put(TTMP + 7, y | z << 16)
            state.put(TTMP + 8, wave << 25)
        else:
            for register, value in enumerate((x, y, z, wave << 20), self._user_sgprs):
                state.put(register, value)
        state.registers[VGPR] = np.arange(32, dtype=np.int64) + 32 * wave
        runs: dict[int, int] = dict.fromkeys(self._flow.blocks, 0)
        index: int | None = self._entry
        while index is not None and index in runs:
            runs[index] += 1
            if runs[index] > MOST_RUNS:
                raise UnsupportedError(
                    f"a wave executes the block at {index:#x} more than {MOST_RUNS} times",
                )
            index = self._run(index, state)
        return self._sum_runs(runs, state.unknown)

    def _run(self, start: int, state: _State) -> int | None:
        block, (steps, branch) = self._flow.blocks[start], self._steps[start]
        for instruction, written in steps:
            _execute(instruction, written, state)
        if branch is None:
            return block.successors[0] if block.successors else None
        pc, last = branch
        kind = last.row.name.rpartition("_")[2]
        if last.row.flow == "branch":
            return find_branch_target(pc, last)
        taken = state.is_condition_met(kind)
        return find_branch_target(pc, last) if taken else pc + last.size_bytes

    @cached_property
    def _steps(self) -> dict[int, tuple[list[_Step], tuple[int, Instruction] | None]]:
        steps = {}
        for start, block in self._flow.blocks.items():
            written = ((item, effects(item, self._target).writes) for _, item in block.instructions)
            needed = [(item, _list_registers(writes)) for item, writes in written if writes & self._needed]
            last = block.instructions[-1] if block.instructions else None
            branch = last if last is not None and last[1].row.flow in ("branch", "conditional") else None
            steps[start] = needed, branch
        return steps

    @cached_property
    def _compute_weights(self) -> dict[int, _Weight]:
        return {
            start: compute_weight([item for _, item in block.instructions], self._target)
            for start, block in self._flow.blocks.items()
        }

    def _find_branch_registers(self) -> int:
        """Return every register that a branch may depend on."""
        instructions = [item for _, item in self._flow.instructions()]
        sets = [effects(instruction, self._target) for instruction in instructions]
        needed = unite(
            item.reads for item, one in zip(sets, instructions, strict=True) if one.row.flow == "conditional"
        )
        computed = [item for item, one in zip(sets, instructions, strict=True) if _has_rule(one)]
        while True:
            more = needed | unite(item.reads for item in computed if item.writes & needed)
            if more == needed:
                return needed
            needed = more

    def _sum_runs(self, runs: Mapping[int, int], unknown: int) -> WaveCounts:
        units: Counter[str] = Counter()
        matrix: Counter[str] = Counter()
        loaded = stored = lds = flops = 0
        for start, count in runs.items():
            weight = self._compute_weights[start]
            for unit, number in weight.units.items():
                units[unit] += count * number
            for kind, number in weight.matrix_ops.items():
                matrix[kind] += count * number
            loaded, stored = loaded + count * weight.load_bytes, stored + count * weight.store_bytes
            lds, flops = lds + count * weight.lds_bytes, flops + count * weight.vector_flops
        return WaveCounts(units, loaded, stored, lds, flops, matrix, unknown)


def compute_weight(instructions: list[Instruction], target: Target) -> _Weight:
    """Return the operations and bytes of one execution of a block's instructions, for a full wave."""
    from zinc_rt.isa.report import find_unit

    units: Counter[str] = Counter()
    matrix: Counter[str] = Counter()
    moved: Counter[str] = Counter()
    flops = 0
    for instruction in instructions:
        unit = find_unit(instruction)
        units[unit] += 1
        moved[unit] += instruction.row.access_bytes * (1 if unit == "smem" else target.wave)
        kind = find_matrix_kind(instruction)
        if kind:
            matrix[kind[0]] += kind[1]
        else:
            flops += target.wave * sum(map(_count_flops, (instruction, instruction.second)))
    return _Weight(units, moved["load"] + moved["smem"], moved["store"], moved["lds"], flops, matrix)


def find_matrix_kind(instruction: Instruction) -> tuple[str, int] | None:
    """Return the input type of a matrix or dot instruction and its multiplications and additions for a wave."""
    name = instruction.row.name
    if "wmma" in name:
        *_, shape, kind = name.split("_")
        rows, columns, depth = (int(part) for part in shape.split("x"))
        return kind, 2 * rows * columns * depth
    if "_dot4_" in name or "_dot8_" in name:
        return "dot", 2 * 32 * (4 if "_dot4_" in name else 8)
    return None


def _count_flops(instruction: Instruction | None) -> int:
    if instruction is None:
        return 0
    name = instruction.row.name
    if any(part in name for part in _TWO):
        return 2
    return int(any(part in name for part in _ONE))


# --- scalar state


class _State:
    """Registers by their number in effects.py; None is unknown."""

    def __init__(self, memory: ReadDword) -> None:
        self.registers: dict[int, Any] = {EXEC: _WORD, EXEC + 1: 0}  # of vector registers an array, int64 [32]
        self.memory = memory
        self.unknown = 0

    def put(self, register: int, value: _Value, width: int = 1) -> None:
        for index in range(width):
            self.registers[register + index] = None if value is None else value >> 32 * index & _WORD

    def get(self, register: int, width: int = 1) -> _Value:
        parts = [self.registers.get(register + index) for index in range(width)]
        if any(part is None for part in parts):
            return None
        return sum((part or 0) << 32 * index for index, part in enumerate(parts))

    def is_condition_met(self, kind: str) -> bool:
        """Return whether a conditional branch (scc1, vccz, execz, …) is taken."""
        of, wanted = (SCC, int(kind[-1])) if kind.startswith("scc") else (VCC if "vcc" in kind else EXEC, 0)
        value = self.registers.get(of)
        if value is None:
            self.unknown += 1
            return _UNKNOWN[kind]
        if of == SCC:
            return value == wanted
        return (value == 0) == kind.endswith("z") if not kind.endswith("nz") else value != 0


def _register_number(operand: Operand) -> int | None:
    """Return the number of an operand's first register in effects.py, None for a constant."""
    if operand.kind is Kind.SGPR:
        return operand.index
    if operand.kind is Kind.TTMP:
        return TTMP + operand.index
    if operand.kind is Kind.SPECIAL and operand.index in (VCC, VCC + 1, M0, EXEC, EXEC + 1):
        return operand.index
    return None


def _read(operand: Operand, state: _State, width: int) -> _Value:
    register = _register_number(operand)
    if register is not None:
        return state.get(register, width)
    if operand.kind is Kind.SPECIAL and operand.index == NULL:
        return 0
    if isinstance(operand.value, int) and operand.kind in (Kind.INTEGER, Kind.LITERAL, Kind.IMMEDIATE):
        return operand.value & (_LONG if width == 2 else _WORD)
    return None


def _list_registers(written: int) -> tuple[int, ...]:
    return tuple(index for index in range(written.bit_length()) if written >> index & 1)


def _has_rule(instruction: Instruction) -> bool:
    row = instruction.row
    if row.unit == "smem":
        return row.name.startswith("s_load")
    return row.name in _RULES or (instruction.second is None and not instruction.dpp and row.name in _LANE_RULES)


def _execute(instruction: Instruction, written: tuple[int, ...], state: _State) -> None:
    row = instruction.row
    if not _has_rule(instruction):
        for register in written:
            state.registers[register] = None
    elif row.unit == "smem":
        _load(instruction, state)
    elif row.name in _LANE_RULES:
        _execute_lanes(instruction, written, state)
    else:
        _execute_scalar(instruction, SCC in written, state)


def _execute_scalar(instruction: Instruction, writes_scc: bool, state: _State) -> None:
    name, results = instruction.row.name, count_written_operands(instruction)
    width = 2 if name.endswith("64") else 1
    operands = instruction.operands if name.startswith("s_addk") else instruction.operands[results:]
    widths = [
        1 if "bfm" in name or (index and name in ("s_lshl_b64", "s_lshr_b64")) else width for index in range(4)
    ]
    sources = [_read(item, state, size) for item, size in zip(operands, widths, strict=False)]
    if name == "s_and_saveexec_b32":
        saved = state.get(EXEC)
        known = saved is not None and sources[0] is not None
        value = (saved or 0) & (sources[0] or 0) if known else None
        state.put(EXEC, value)
        carry: _Value = None if value is None else int(value != 0)
        value = saved
    else:
        value, carry = _RULES[name](sources, state.registers.get(SCC))
    register = _register_number(instruction.operands[0]) if results else None
    if register is not None:
        state.put(register, value, width)
    if writes_scc:
        state.registers[SCC] = carry


def _execute_lanes(instruction: Instruction, written: tuple[int, ...], state: _State) -> None:
    """Execute a vector instruction in the active lanes."""
    name, active = instruction.row.name, state.registers.get(EXEC)
    compares = name.startswith("v_cmp")
    operands = instruction.operands[count_written_operands(instruction) :]
    sources = [_read_lane_values(operand, state) for operand in operands]
    if active is None or any(source is None for source in sources):
        for register in written:
            state.registers[register] = None
        return
    lanes = np.array([active >> lane & 1 for lane in range(32)], bool)
    result = _LANE_RULES[name](*sources)
    (register, *_) = written
    if compares:
        state.put(register, sum(1 << int(lane) for lane in np.flatnonzero(np.broadcast_to(result, 32) & lanes)))
    elif name == "v_readfirstlane_b32":
        first = int(np.flatnonzero(lanes)[0]) if active else 0
        state.put(register, int(np.broadcast_to(result, 32)[first]))
    else:
        before = state.registers.get(register)
        instructions = np.broadcast_to(result & _WORD, 32)
        state.registers[register] = (
            instructions if active == _WORD or before is None else np.where(lanes, instructions, before)
        )


def _read_lane_values(operand: Operand, state: _State) -> Any:
    if operand.kind is Kind.VGPR:
        return state.registers.get(VGPR + operand.index)
    value = _read(operand, state, 1)
    return None if value is None else np.int64(value)


def _load(instruction: Instruction, state: _State) -> None:
    destination, base, offset, *_ = instruction.operands
    register = _register_number(destination)
    assert register is not None
    address, extra = state.get(base.index, 2), _read(offset, state, 1)
    modifier = instruction.modifier("offset")
    more = modifier.value if modifier is not None and isinstance(modifier.value, int) else 0
    for index in range(destination.width):
        known = address is not None and extra is not None
        value = state.memory((address or 0) + (extra or 0) + more + 4 * index) if known else None
        state.put(register + index, value)


# --- rules: (operands, SCC) -> (result, SCC)

_Rule = Callable[[list[_Value], _Value], tuple[_Value, _Value]]


def _require_known(rule: Callable[..., tuple[int, int | None]]) -> _Rule:
    def apply(sources: list[_Value], scc: _Value) -> tuple[_Value, _Value]:
        if any(source is None for source in sources):
            return None, None
        return rule(*sources)

    return apply


def _signed(value: int) -> int:
    return value - ((value & 1 << 31) << 1)


def _make_bit_rule(function: Callable[[int, int], int], mask: int) -> _Rule:
    def rule(a: int, b: int) -> tuple[int, int]:
        value = function(a, b) & mask
        return value, int(value != 0)

    return _require_known(rule)


def _make_plain_rule(function: Callable[..., int], mask: int = _WORD) -> _Rule:
    return _require_known(lambda *sources: (function(*sources) & mask, None))


def _make_compare_rule(function: Callable[[int, int], bool], *, signed: bool = False) -> _Rule:
    def rule(a: int, b: int) -> tuple[int, int]:
        return 0, int(function(_signed(a), _signed(b)) if signed else function(a, b))

    return _require_known(rule)


def _make_choose_rule(pick: Callable[[int, int], int], *, signed: bool) -> _Rule:
    def rule(a: int, b: int) -> tuple[int, int]:
        value = pick(_signed(a), _signed(b)) if signed else pick(a, b)
        return value & _WORD, int(value == (_signed(a) if signed else a))

    return _require_known(rule)


def _select(sources: list[_Value], scc: _Value) -> tuple[_Value, _Value]:
    if scc is None:
        return (sources[0] if sources[0] == sources[1] else None), None
    return sources[0 if scc else 1], scc


def _sum(a: int, b: int) -> tuple[int, int]:
    return a + b & _WORD, (a + b) >> 32


def _sum_with_carry(sources: list[_Value], scc: _Value) -> tuple[_Value, _Value]:
    return _require_known(lambda a, b, carry: _sum(a + carry, b))([*sources, scc], scc)


def _difference(a: int, b: int) -> tuple[int, int]:
    return a - b & _WORD, int(b > a)


def _signed_sum(a: int, b: int) -> tuple[int, int]:
    value = _signed(a) + _signed(b)
    return value & _WORD, int(not -(1 << 31) <= value < 1 << 31)


def _signed_difference(a: int, b: int) -> tuple[int, int]:
    value = _signed(a) - _signed(b)
    return value & _WORD, int(not -(1 << 31) <= value < 1 << 31)


def _field(value: int, control: int) -> tuple[int, int]:
    width = control >> 16 & 0x7F
    result = value >> (control & 31) & ((1 << width) - 1)
    return result, int(result != 0)


_RULES: dict[str, _Rule] = {
    "s_mov_b32": _make_plain_rule(lambda a: a),
    "s_mov_b64": _make_plain_rule(lambda a: a, _LONG),
    "s_not_b32": _require_known(lambda a: (~a & _WORD, int(~a & _WORD != 0))),
    "s_add_co_u32": _require_known(_sum),
    "s_add_co_i32": _require_known(_signed_sum),
    "s_addk_co_i32": _require_known(_signed_sum),
    "s_sub_co_u32": _require_known(_difference),
    "s_sub_co_i32": _require_known(_signed_difference),
    "s_add_u32": _require_known(_sum),
    "s_add_i32": _require_known(_signed_sum),
    "s_addk_i32": _require_known(_signed_sum),
    "s_addc_u32": _sum_with_carry,
    "s_sub_u32": _require_known(_difference),
    "s_sub_i32": _require_known(_signed_difference),
    "s_pack_ll_b32_b16": _make_plain_rule(lambda a, b: a & 0xFFFF | b << 16),
    "s_add_nc_u64": _make_plain_rule(lambda a, b: a + b, _LONG),
    "s_sub_nc_u64": _make_plain_rule(lambda a, b: a - b, _LONG),
    "s_mul_i32": _make_plain_rule(lambda a, b: a * b),
    "s_mul_hi_u32": _make_plain_rule(lambda a, b: a * b >> 32),
    "s_and_b32": _make_bit_rule(lambda a, b: a & b, _WORD),
    "s_or_b32": _make_bit_rule(lambda a, b: a | b, _WORD),
    "s_xor_b32": _make_bit_rule(lambda a, b: a ^ b, _WORD),
    "s_and_not1_b32": _make_bit_rule(lambda a, b: a & ~b, _WORD),
    "s_and_saveexec_b32": lambda sources, scc: (None, None),  # see _scalar
    "s_lshl_b32": _make_bit_rule(lambda a, b: a << (b & 31), _WORD),
    "s_lshr_b32": _make_bit_rule(lambda a, b: a >> (b & 31), _WORD),
    "s_ashr_i32": _make_bit_rule(lambda a, b: _signed(a) >> (b & 31), _WORD),
    "s_lshl_b64": _make_bit_rule(lambda a, b: a << (b & 63), _LONG),
    "s_bfe_u32": _require_known(_field),
    "s_bfm_b32": _make_plain_rule(lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    "s_bfm_b64": _make_plain_rule(lambda a, b: ((1 << (a & 63)) - 1) << (b & 63), _LONG),
    "s_bitcmp1_b32": _make_compare_rule(lambda a, b: bool(a >> (b & 31) & 1)),
    "s_cselect_b32": _select,
    "s_cselect_b64": _select,
    "s_min_u32": _make_choose_rule(min, signed=False),
    "s_max_u32": _make_choose_rule(max, signed=False),
    "s_min_i32": _make_choose_rule(min, signed=True),
    "s_max_i32": _make_choose_rule(max, signed=True),
    "s_clz_i32_u32": _make_plain_rule(lambda a: 32 - a.bit_length() if a else -1),
    **{
        f"s_cmp_{name}_{kind}": _make_compare_rule(function, signed=kind == "i32")
        for kind in ("u32", "i32", "u64")
        for name, function in {
            "eq": lambda a, b: a == b,
            "lg": lambda a, b: a != b,
            "lt": lambda a, b: a < b,
            "le": lambda a, b: a <= b,
            "gt": lambda a, b: a > b,
            "ge": lambda a, b: a >= b,
        }.items()
    },
}


def _as_signed(values: Any) -> Any:
    return values - ((values & 1 << 31) << 1)


def _make_lane_compare(function: Callable[..., Any], convert: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda a, b: function(convert(a), convert(b))


_LANE_RULES: dict[str, Callable[..., Any]] = {
    "v_mov_b32": lambda a: a,
    "v_readfirstlane_b32": lambda a: a,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_add_nc_u32": lambda a, b: a + b,
    "v_sub_nc_u32": lambda a, b: a - b,
    "v_subrev_nc_u32": lambda a, b: b - a,
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_lshl_or_b32": lambda a, b, c: (a << (b & 31)) | c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & 31),
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    **{
        f"v_cmp_{name}_{kind}": _make_lane_compare(function, of)
        for kind, of in (("u32", lambda values: values), ("i32", _as_signed))
        for name, function in {
            "eq": np.equal,
            "ne": np.not_equal,
            "lt": np.less,
            "le": np.less_equal,
            "gt": np.greater,
            "ge": np.greater_equal,
        }.items()
    },
}
