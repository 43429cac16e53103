"""Sparse wave matrix multiply-accumulate: D += A * B, where two of every four elements of a row of A are stored.

A stored element of A is multiplied by one of four elements of B: those at the same position of the same lanes,
where B has two registers for each register of A. A 2-bit index per stored element selects which one. The indices
are in the index register of A's lane, lowest element first; index_key selects the field if a lane uses fewer than
32 bits. The guide's lane table and its index layout contradict each other [U]; this reading does not depend on the
numbering of k. The 4-bit form with 32 elements reads A from lanes 0 to 31 only. In wave64, lanes 0 to 15 of A are
paired with lanes 0 to 15 and 32 to 47 of B and the other lanes with the rest, as in the table of the dense form.

Sums are computed as in the dense forms of the stored elements (wmma.py); this was not captured for sparse floats
[U]. For integers in wave32, clamp saturates twice: after the products of lanes 0 to 15 and after the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.isa import Instruction
from zinc_rt.sim.shader.alu.dot_step import dot_step
from zinc_rt.sim.shader.alu.packed import modifier_bits
from zinc_rt.sim.shader.alu.vector import Value, outline
from zinc_rt.sim.shader.alu.wmma import (
    BITS,
    ORDER,
    ROWS,
    STEPS,
    Place,
    element,
    halves,
    join_parts,
    negate_halves,
    report_partial,
    result_row,
    saturate_sums,
    struct_of,
    unpack_words,
)
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I1, I32, constant


@dataclass(frozen=True, slots=True)
class SparseMatrix:
    """A sparse matrix form. `a` and `b` are f16, bf16, fp8, bf8, iu8 or iu4; `result` is f32, f16, bf16 or i32;
    `length` is the size of k including elements that are not stored.
    """

    result: str
    a: str
    b: str
    length: int = 32

    def __call__(self, e: Emitter, instruction: Instruction) -> None:
        destination, *sources = instruction.operands
        report_partial(e)
        every = constant(1, e.b.lanes(I1))
        a, b, index, c = (
            [e.regs.read_vgpr(s.index + index, lanes=every) for index in range(s.width)]
            for s in (*sources, destination)
        )
        low, high = (modifier_bits(instruction, name, 0) for name in ("neg_lo", "neg_hi"))
        integer = self.result == "i32"
        clamp = integer and instruction.modifier("clamp") is not None
        signed = (bool(low[0]), bool(low[1])) if integer else (False, False)
        if not integer:
            a, b = (
                [negate_halves(e, word, low[index], high[index]) for word in words]
                for index, words in enumerate((a, b))
            )
        key = instruction.modifier("index_key")
        chosen = int(key.value) if key is not None and isinstance(key.value, int) else 0
        field = chosen * 2 * (32 // BITS[self.a]) * len(a) & 31

        def body(e: Emitter, *words: Value) -> Value:
            parts = words[: len(a)], words[len(a) : len(a) + len(b)], words[len(a) + len(b) + 1 :]
            return struct_of(e, self._multiply(e, *parts, words[len(a) + len(b)], field, signed, clamp))

        saturates = self.result == "f16" and e.mode.saturates
        name = f"zrt.{instruction.mnemonic}.{e.wave}.{signed[0]:d}{signed[1]:d}{clamp:d}{saturates:d}.{field}"
        result = outline(e, name, struct_of(e, c).type, body, *a, *b, *index, *c)
        for at in range(len(c)):
            e.regs.write_vgpr(destination.index + at, e.b.extract_value(result, at), masked=False)

    def _multiply(
        self,
        e: Emitter,
        a: tuple[Value, ...],
        b: tuple[Value, ...],
        c: tuple[Value, ...],
        index: Value,
        field: int,
        signed: tuple[bool, bool],
        clamp: bool,
    ) -> list[Value]:
        """Return the words of D."""
        rows = ROWS * ROWS // e.wave
        pick = _Picker(e, self.b, b, index, field)
        if BITS[self.a] == 16:
            sums = list(c) if self.result == "f32" else [half for word in c for half in halves(e, word)]
            for group, register in STEPS[e.wave]:
                for row in range(rows):
                    left = [_row_word(e, a[register + index], group, row) for index in range(2)]
                    right = [pick.pair(group, row, register + index) for index in range(2)]
                    sums[row] = dot_step(e, self.a, self.result, left, right, sums[row])
            if self.result == "f32":
                return sums
            return join_parts(e, sums)
        start = unpack_words(e, c, self.result)
        places = [ORDER[BITS[self.a], self.length // 2, e.wave](k) for k in range(self.length // 2)]
        if self.result == "i32":
            groups = ((0,), (1,)) if e.wave == 32 else ((0, 1, 2, 3),)
            for stage in groups:
                taken = [location for location in places if location[0] in stage]
                start = saturate_sums(e, start, self._products(e, a, pick, taken, rows, signed), clamp)
            return start
        sums = list(start)
        for location in places:
            for row in range(rows):
                x = element(e, _row_word(e, a[location[1]], location[0], row), self.a, location[2], signed[0])
                y = pick.element(row, location, signed[1])
                sums[row] = e.b.intrinsic("llvm.fma", x.type, x, y, sums[row])
        return [e.b.bitcast(total, e.b.lanes(I32)) for total in sums]

    def _products(
        self,
        e: Emitter,
        a: tuple[Value, ...],
        pick: _Picker,
        places: list[Place],
        rows: int,
        signed: tuple[bool, bool],
    ) -> list[Value]:
        """Return the sum of the integer products at the given positions for each row."""
        sums = [constant(0, e.b.lanes(I32))] * rows
        for location in places:
            for row in range(rows):
                x = element(e, _row_word(e, a[location[1]], location[0], row), self.a, location[2], signed[0])
                sums[row] = e.b.add(sums[row], e.b.mul(x, pick.element(row, location, signed[1])))
        return sums


def _row_word(e: Emitter, word: Value, group: int, row: int) -> Value:
    """Move a register of A's lanes to the lanes that hold register `row` of D."""
    return e.b.shuffled(word, [ROWS * group + result_row(lane, row, e.wave) for lane in range(e.wave)])


@dataclass(frozen=True, slots=True)
class _Picker:
    """A selector of the elements of B that correspond to the stored elements of A."""

    e: Emitter
    kind: str
    b: tuple[Value, ...]
    index: Value
    field: int

    def _choice(self, group: int, row: int, stored: int) -> Value:
        """Return the 2-bit index (0 to 3) of stored element number `stored` of A's lane."""
        index = _row_word(self.e, self.index, group, row)
        return self.e.b.and_(self.e.b.lshr(index, self.field + 2 * stored), 3)

    def _column(self, group: int, register: int) -> Value:
        lanes = [ROWS * group + lane % ROWS for lane in range(self.e.wave)]
        return self.e.b.shuffled(self.b[register], lanes)

    def pair(self, group: int, row: int, register: int) -> Value:
        """Return two halves in a word, for the two elements of A's `register`."""
        b = self.e.b
        words = [self._column(group, 2 * register + index) for index in range(2)]
        result = []
        for index in range(2):
            choice = self._choice(group, row, 2 * register + index)
            word = b.select(b.has(choice, 2), words[1], words[0])
            result.append(b.and_(b.lshr(word, b.shl(b.and_(choice, 1), 4)), 0xFFFF))
        return b.or_(result[0], b.shl(result[1], 16))

    def element(self, row: int, place: Place, signed: bool) -> Value:
        """Return one 8-bit or 4-bit element as a 32-bit float or integer."""
        group, register, number = place
        b, bits = self.e.b, BITS[self.kind]
        item = 32 // bits
        stored = register * item + number
        first = stored // 2 * 4
        if first >= item * len(self.b):
            group, first = group + 2, first - item * len(self.b)
        choice = self._choice(place[0], row, stored)
        by = b.mul(b.add(choice, first % item), bits)
        word = b.lshr(self._column(group, first // item), by)
        return element(self.e, word, self.kind, 0, signed)


EMIT: dict[str, EmitFunction] = {
    "v_swmmac_f32_16x16x32_f16": SparseMatrix("f32", "f16", "f16"),
    "v_swmmac_f32_16x16x32_bf16": SparseMatrix("f32", "bf16", "bf16"),
    "v_swmmac_f16_16x16x32_f16": SparseMatrix("f16", "f16", "f16"),
    "v_swmmac_bf16_16x16x32_bf16": SparseMatrix("bf16", "bf16", "bf16"),
    "v_swmmac_i32_16x16x32_iu8": SparseMatrix("i32", "iu8", "iu8"),
    "v_swmmac_i32_16x16x32_iu4": SparseMatrix("i32", "iu4", "iu4"),
    "v_swmmac_i32_16x16x64_iu4": SparseMatrix("i32", "iu4", "iu4", length=64),
    **{
        f"v_swmmac_f32_16x16x32_{a}_{b}": SparseMatrix("f32", a, b) for a in ("fp8", "bf8") for b in ("fp8", "bf8")
    },
}
