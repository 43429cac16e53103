"""Wave matrix multiply-accumulate: D = A * B + C of 16x16 matrices distributed over the wave (RDNA4 ISA 7.12).

Row m of A is in the lanes with lane % 16 = m, column n of B in those with lane % 16 = n; ORDER gives the location
of element k. Public sources differ about it [U], but A and B share it, so it only affects the order of sums.

Products of 16-bit floats are added four at a time in the order of STEPS, as captured on silicon (dot_step.py). The
addition of 8-bit floats was not captured: each sum starts at C and uses 32-bit fused multiply-adds in increasing
k. 16-bit floats do the same if a facts file says so. Integer results are exact (saturated at the end with clamp).

On gfx11, A and B are needed once in every 16 lanes, the rows of D are interleaved, and a 16-bit D has one half
per register (RDNA3 ISA 7.9; lane tables of AMD's matrix instruction calculator). No source gives the order of
sums; that of gfx12 is assumed.

EXEC is treated as all ones; any other value is reported as a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.alu.dot_step import dot_step
from zinc_rt.sim.shader.alu.packed import bfloat_of_float, field, float_of_bfloat, modifier_bits, word
from zinc_rt.sim.shader.alu.small_float import from_bf8, from_fp8
from zinc_rt.sim.shader.alu.vector import Value, outline
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import FLOAT, HALF, I1, I16, I32, constant

ROWS = 16
Place = tuple[int, int, int]  # lane // 16, register, which field of the register


def _bit(k: int, number: int) -> int:
    return k >> number & 1


# (bits of an element, length of k, wave) -> where element k of a row of A, or of a column of B, is
ORDER: dict[tuple[int, int, int], Callable[[int], Place]] = {
    (16, 16, 32): lambda k: (_bit(k, 2), _bit(k, 3) << 1 | _bit(k, 1), k & 1),
    (16, 16, 64): lambda k: (k >> 2, _bit(k, 1), k & 1),
    (8, 16, 32): lambda k: (_bit(k, 3), _bit(k, 2), k & 3),
    (8, 16, 64): lambda k: (_bit(k, 2) << 1 | _bit(k, 3), 0, k & 3),
    (4, 16, 32): lambda k: (_bit(k, 3), 0, k & 7),
    (4, 16, 64): lambda k: (_bit(k, 3), 0, k & 7),  # lanes 32 to 63 are not read
    (4, 32, 32): lambda k: (_bit(k, 4), _bit(k, 3), k & 7),
    (4, 32, 64): lambda k: (_bit(k, 3) << 1 | _bit(k, 4), 0, k & 7),
}


# wave -> where the four products of each step are: lane // 16, first of two registers. Captured on an R9700
STEPS: dict[int, tuple[tuple[int, int], ...]] = {
    32: ((0, 0), (1, 0), (0, 2), (1, 2)),
    64: ((0, 0), (1, 0), (2, 0), (3, 0)),
}


def result_row(lane: int, register: int, wave: int) -> int:
    """Return the row of C and D in a lane's 32-bit register; the column is lane % 16."""
    group = lane // ROWS
    if wave == 32:
        return group << 3 | register
    return (group & 1) << 3 | (group >> 1) << 2 | register


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """Where matrices are in a wave. `places`(bits, length of k, wave): of element k of a row of A or column of B.
    `steps`(wave): STEPS. `row`(lane, register, wave): of C and D.
    """

    places: Callable[[int, int, int], Callable[[int], Place]]
    steps: Callable[[int], tuple[tuple[int, int], ...]]
    row: Callable[[int, int, int], int]


def _place_replicated(bits: int, length: int, wave: int) -> Callable[[int], Place]:
    return lambda k: (0, k * bits // 32, k % (32 // bits))


def _interleaved_row(lane: int, register: int, wave: int) -> int:
    return register * (wave // ROWS) + lane // ROWS


_REPLICATED = MatrixLayout(
    _place_replicated, lambda wave: tuple((0, register) for register in (0, 2, 4, 6)), _interleaved_row
)
_SPREAD = MatrixLayout(lambda bits, length, wave: ORDER[bits, length, wave], STEPS.__getitem__, result_row)


def _find_layout(e: Emitter) -> MatrixLayout:
    return _REPLICATED if e.rules.has_replicated_matrices else _SPREAD


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix form. `a` and `b` are f16, bf16, fp8, bf8, iu8 or iu4; `result` is f32, f16, bf16 or i32."""

    result: str
    a: str
    b: str
    length: int = 16

    def __call__(self, e: Emitter, instruction: Instruction) -> None:
        destination, *sources = instruction.operands
        report_partial(e)
        every = constant(1, e.b.lanes(I1))
        a, b = ([e.regs.read_vgpr(s.index + index, lanes=every) for index in range(s.width)] for s in sources[:2])
        if e.rules.has_replicated_matrices:
            _report_unequal_copies(e, [*a, *b])
        c = _accumulator(e, sources[2], destination.width, self.result, every)
        low, high = (modifier_bits(instruction, name, 0) for name in ("neg_lo", "neg_hi"))
        integer = self.result == "i32"
        clamp = integer and instruction.modifier("clamp") is not None
        signed = (bool(low[0]), bool(low[1])) if integer else (False, False)
        if not integer:
            a = [negate_halves(e, value, low[0], high[0]) for value in a]
            b = [negate_halves(e, value, low[1], high[1]) for value in b]
            c = [_apply_modifiers(e, value, self.result, bool(high[2]), bool(low[2])) for value in c]

        half = modifier_bits(instruction, "op_sel", 0)[2] if self._has_one_half(e) else None
        if half is not None:
            c = [halves(e, value)[half] for value in c]

        def body(e: Emitter, *words: Value) -> Value:
            parts = (words[: len(a)], words[len(a) : len(a) + len(b)], words[len(a) + len(b) :])
            if BITS[self.a] == 16 and not (e.checks.wmma_f16_order and e.wave == 32):
                return struct_of(e, self._in_steps(e, *parts))
            return struct_of(e, self._multiply(e, *parts, signed, clamp))

        saturates = self.result == "f16" and e.mode.saturates
        copies = ".copies" * e.rules.has_replicated_matrices
        name = f"zrt.{instruction.mnemonic}{copies}.{e.wave}.{signed[0]:d}{signed[1]:d}{clamp:d}{saturates:d}"
        result = ir.LiteralStructType([e.b.lanes(I32)] * len(c))
        results = outline(e, name, result, body, *a, *b, *c)
        for index in range(len(c)):
            register, value, kept = destination.index + index, e.b.extract_value(results, index), 0
            if half is not None:  # the other half of D is kept
                kept = 0xFFFF if half else 0xFFFF0000
                old = e.regs.read_vgpr(register, check=False)
                value = e.b.or_(e.b.and_(old, kept), e.b.shl(value, 16) if half else value)
            e.regs.write_vgpr(register, value, masked=False, kept=kept)

    def _has_one_half(self, e: Emitter) -> bool:
        """Return whether C and D have one 16-bit element in a register, which op_sel selects."""
        return e.rules.has_replicated_matrices and self.result in ("f16", "bf16")

    def _in_steps(
        self, e: Emitter, a: tuple[Value, ...], b: tuple[Value, ...], c: tuple[Value, ...]
    ) -> list[Value]:
        """Return the result bits, in the layout of C."""
        layout = _find_layout(e)
        apart = self.result == "f32" or self._has_one_half(e)
        sums = list(c) if apart else [half for word in c for half in halves(e, word)]
        for group, register in layout.steps(e.wave):
            column = [ROWS * group + lane % ROWS for lane in range(e.wave)]
            right = [e.b.shuffled(b[register + index], column) for index in range(2)]
            for row in range(len(sums)):
                lanes = [ROWS * group + layout.row(lane, row, e.wave) for lane in range(e.wave)]
                left = [e.b.shuffled(a[register + index], lanes) for index in range(2)]
                sums[row] = dot_step(e, self.a, self.result, left, right, sums[row])
        return sums if apart else join_parts(e, sums)

    def _multiply(
        self,
        e: Emitter,
        a: tuple[Value, ...],
        b: tuple[Value, ...],
        c: tuple[Value, ...],
        signed: tuple[bool, bool],
        clamp: bool,
    ) -> list[Value]:
        rows = ROWS * ROWS // e.wave  # of D in a lane
        sums = unpack_words(e, c, self.result)
        start = sums
        if self.result == "i32":
            sums = [constant(0, e.b.lanes(I32))] * rows
        layout = _find_layout(e)
        place_of = layout.places(BITS[self.a], self.length, e.wave)
        learned = e.checks.wmma_f16_order
        if learned and (BITS[self.a], e.wave) == (16, 32):
            place_of = learned.__getitem__
        for k in range(self.length):
            group, register, number = place_of(k)
            left = element(e, a[register], self.a, number, signed[0])
            right = element(e, b[register], self.b, number, signed[1])
            right = e.b.shuffled(right, [ROWS * group + lane % ROWS for lane in range(e.wave)])
            for row in range(rows):
                lanes = [ROWS * group + layout.row(lane, row, e.wave) for lane in range(e.wave)]
                x = e.b.shuffled(left, lanes)
                if self.result == "i32":
                    sums[row] = e.b.add(sums[row], e.b.mul(x, right))
                else:
                    sums[row] = e.b.intrinsic("llvm.fma", x.type, x, right, sums[row])
        if self.result == "i32":
            return saturate_sums(e, start, sums, clamp)
        return _pack_rows(e, sums, self.result)


def report_partial(e: Emitter) -> None:
    if e.checks.fast and not e.exec.full:
        partial = e.b.unequal(e.exec.bits(), -1)
        e.reports.report_if("wmma-exec", partial, "EXEC is not all ones")


def _report_unequal_copies(e: Emitter, words: list[Value]) -> None:
    """Report lanes whose A or B differs from that of the lane with the same number modulo 16."""
    if not e.checks.fast:
        return
    first = [lane % ROWS for lane in range(e.wave)]
    differs = constant(0, e.b.lanes(I1))
    for value in words:
        differs = e.b.or_(differs, e.b.unequal(value, e.b.shuffled(value, first)))
    unequal = e.b.unequal(e.b.bits(differs), 0)
    e.reports.report_if("wmma-copies", unequal, "A and B must be equal in lanes 0-15 and every further 16 lanes")


def saturate_sums(e: Emitter, start: list[Value], sums: list[Value], clamp: bool) -> list[Value]:
    """Add C and the product sums; saturate at the end if clamp is set."""
    pairs = zip(start, sums, strict=True)
    if clamp:
        return [e.b.intrinsic("llvm.sadd.sat", s.type, s, total) for s, total in pairs]
    return [e.b.add(s, total) for s, total in pairs]


BITS = {"f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "iu8": 8, "iu4": 4}


def element(e: Emitter, value: Value, kind: str, number: int, signed: bool) -> Value:
    """Return field `number` of <W x i32> as 32-bit floats or integers."""
    if kind == "f16":
        if number:
            value = e.b.lshr(value, 16)
        half = e.b.bitcast(e.b.trunc(value, e.b.lanes(I16)), e.b.lanes(HALF))
        return e.b.fpext(half, e.b.lanes(FLOAT))
    if kind == "bf16":
        return float_of_bfloat(e, value, number, 0)
    result = field(e, value, number, BITS[kind], signed)
    return {"fp8": from_fp8, "bf8": from_bf8}[kind](e, result) if kind in ("fp8", "bf8") else result


def _accumulator(e: Emitter, operand: Operand, width: int, result: str, every: Value) -> list[Value]:
    """Return the registers of C; a constant is used for all of them."""
    if operand.kind is Kind.VGPR:
        return [e.regs.read_vgpr(operand.index + index, lanes=every) for index in range(width)]
    value = word(e, operand, {"f16": "hh", "bf16": "yy"}.get(result, "i"))
    if operand.kind is Kind.INTEGER and result in ("f16", "bf16"):  # captured: in both halves
        low = e.b.and_(value, 0xFFFF)
        value = e.b.or_(low, e.b.shl(low, 16))
    return [value] * width


def halves(e: Emitter, value: Value) -> tuple[Value, Value]:
    return e.b.and_(value, 0xFFFF), e.b.lshr(value, 16)


def join_parts(e: Emitter, parts: Sequence[Value]) -> list[Value]:
    """Join halves to 32-bit words, the lower half first; bits above a single lower half are 0."""
    return [e.b.or_(low, e.b.shl(high, 16)) for low, high in zip(parts[::2], parts[1::2], strict=True)]


def negate_halves(e: Emitter, value: Value, low: int, high: int) -> Value:
    mask = low * 0x8000 | high * 0x80000000
    return e.b.xor(value, mask) if mask else value


def _apply_modifiers(e: Emitter, value: Value, result: str, absolute: bool, negate: bool) -> Value:
    """Apply the modifiers of C: neg_hi is abs and neg_lo is neg."""
    sign = 0x80000000 if result == "f32" else 0x80008000
    if absolute:
        value = e.b.and_(value, ~sign)
    return e.b.xor(value, sign) if negate else value


def unpack_words(e: Emitter, words: tuple[Value, ...], result: str) -> list[Value]:
    """Return the rows of C as 32-bit floats or integers; the even row of a 16-bit pair is in the lower half."""
    if result == "i32":
        return list(words)
    if result == "f32":
        return [e.b.bitcast(value, e.b.lanes(FLOAT)) for value in words]
    return [element(e, value, result, number, False) for value in words for number in range(2)]


def _pack_rows(e: Emitter, rows: list[Value], result: str) -> list[Value]:
    if result == "i32":
        return rows
    words = e.b.lanes(I32)
    if result == "f32":
        return [e.b.bitcast(row, words) for row in rows]
    if result == "f16":
        halves = [e.b.bitcast(e.b.fptrunc(row, e.b.lanes(HALF)), e.b.lanes(I16)) for row in rows]
    else:
        halves = [bfloat_of_float(e, row) for row in rows]
    return join_parts(e, [e.b.zext(half, words) for half in halves])


def struct_of(e: Emitter, values: list[Value]) -> Value:
    constant = ir.Constant(ir.LiteralStructType([value.type for value in values]), ir.Undefined)
    for index, value in enumerate(values):
        constant = e.b.insert_value(constant, value, index)
    return constant


EMIT: dict[str, EmitFunction] = {
    "v_wmma_f32_16x16x16_f16": Matrix("f32", "f16", "f16"),
    "v_wmma_f32_16x16x16_bf16": Matrix("f32", "bf16", "bf16"),
    "v_wmma_f16_16x16x16_f16": Matrix("f16", "f16", "f16"),
    "v_wmma_bf16_16x16x16_bf16": Matrix("bf16", "bf16", "bf16"),
    "v_wmma_i32_16x16x16_iu8": Matrix("i32", "iu8", "iu8"),
    "v_wmma_i32_16x16x16_iu4": Matrix("i32", "iu4", "iu4"),
    "v_wmma_i32_16x16x32_iu4": Matrix("i32", "iu4", "iu4", length=32),
    **{f"v_wmma_f32_16x16x16_{a}_{b}": Matrix("f32", a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8")},
}
