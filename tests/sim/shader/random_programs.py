"""Random kernels with structure: nested branches, loops, EXEC narrowed and put back, barriers, 128-bit loads.

All registers are written at the start, in the lanes that exist; at the end all are stored. Conditions of barriers
are the same in every wave. v1 to v8 hold integers, v16 to v31 four quads of floats that shrink, so no NaN.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from machine_words import (
    ENDPGM,
    EXEC,
    LITERAL,
    VCC,
    code_of,
    encode_constant,
    s_move,
    sop1,
    sop2,
    sopc,
    sopp,
    v_mov,
)

from zinc_rt.isa.rows import make_rows

V = 256
INTEGERS = range(1, 9)
QUADS = (16, 20, 24, 28)
LOADED = (32, 36)  # where 128-bit loads go
COUNTER, LANE16, LANE4 = 40, 41, 42
STORED = [*INTEGERS, *range(16, 32)]
VGPRS = 48
SCALARS = range(20, 28)
OUT, DATA, ENTRY_EXEC = 0, 2, 60
DATA_DWORDS = 4096
MAX_DEPTH = 4

_SCALAR_OPERATIONS = (
    "s_add_co_u32",
    "s_sub_co_u32",
    "s_xor_b32",
    "s_and_b32",
    "s_mul_i32",
    "s_max_u32",
    "s_lshr_b32",
)
_VECTOR_OPERATIONS = (
    "v_add_nc_u32",
    "v_sub_nc_u32",
    "v_xor_b32",
    "v_and_b32",
    "v_or_b32",
    "v_max_u32",
    "v_min_i32",
)


def vector_opcode(encoding: str, mnemonic: str) -> int:
    for opcode, row in make_rows("vector", encoding, 12).items():
        if row.mnemonic in (mnemonic, f"{mnemonic}_e32"):
            return opcode
    raise KeyError(mnemonic)


def vop2(mnemonic: str, destination: int, first: int, second: int) -> int:
    return vector_opcode("VOP2", mnemonic) << 25 | destination << 17 | second << 9 | first


def vopc(mnemonic: str, first: int, second: int) -> int:
    return 0x3E << 25 | vector_opcode("VOPC", mnemonic) << 17 | second << 9 | first


def load_b128(destination: int, offset_vgpr: int, base: int, byte_offset: int) -> list[int]:
    """Emit the load and its wait, because these programs also run on other engines (ci/differential.py)."""
    load = [0xEE << 24 | 0x17 << 14 | base, destination, byte_offset << 8 | offset_vgpr]
    return [*load, sopp("s_wait_loadcnt", 0)]


def store_b32(data: int, offset_vgpr: int, base: int, byte_offset: int) -> list[int]:
    return [0xEE << 24 | 0x1A << 14 | base, data << 23, byte_offset << 8 | offset_vgpr]


@dataclass
class ProgramWriter:
    """`wide`: EXEC is two SGPRs. `barriers`: waves may meet."""

    choice: random.Random
    wide: bool
    barriers: bool
    words: list[int] = field(default_factory=list)

    def add(self, *parts: int | list[int]) -> None:
        for part in parts:
            self.words += part if isinstance(part, list) else [part]

    def mask_opcode(self, name: str) -> str:
        return f"{name}_b64" if self.wide else f"{name}_b32"

    def random_source(self) -> int:
        pick = self.choice.randrange(4)
        if pick == 0:
            return encode_constant(self.choice.randrange(-16, 65))
        return self.choice.choice(SCALARS) if pick == 1 else V + self.choice.choice(INTEGERS)

    # --- statements

    def add_statements(self, depth: int, uniform: bool, count: int) -> None:
        """`uniform`: every wave comes here, so a barrier may stand here."""
        for _ in range(count):
            simple = [self.add_vector, self.add_vector, self.add_scalar, self.add_floats, self.add_select]
            nested = [
                self.add_divergent,
                self.add_uniform_branch,
                self.add_loop,
                self.add_lane_loop,
                self.add_float_loop,
                self.add_float_loop,
            ]
            if uniform and self.barriers:
                simple.append(self.add_barrier)
            if depth < MAX_DEPTH and self.choice.random() < 0.45:
                self.choice.choice(nested)(depth + 1, uniform)
            else:
                self.choice.choice(simple)()

    def add_vector(self) -> None:
        name = self.choice.choice(_VECTOR_OPERATIONS)
        destination, second = self.choice.choice(INTEGERS), self.choice.choice(INTEGERS)
        self.add(vop2(name, destination, self.random_source(), second))

    def add_scalar(self) -> None:
        name = self.choice.choice(_SCALAR_OPERATIONS)
        first, second, destination = (self.choice.choice(SCALARS) for _ in range(3))
        self.add(sop2(name, destination, first, second))

    def add_compare(self) -> None:
        name = self.choice.choice(("v_cmp_gt_u32", "v_cmp_lt_i32", "v_cmp_eq_u32", "v_cmp_ne_u32"))
        self.add(vopc(name, self.random_source(), self.choice.choice(INTEGERS)))

    def add_select(self) -> None:
        self.add_compare()
        destination, second = self.choice.choice(INTEGERS), self.choice.choice(INTEGERS)
        self.add(vop2("v_cndmask_b32", destination, self.random_source(), second))

    def add_barrier(self) -> None:
        self.add(sop1("s_barrier_signal", 0, encode_constant(-1)), sopp("s_barrier_wait", 0xFFFF))

    def add_floats(self) -> None:
        """acc = acc * 0.5 + x for whole quads, or for some of a quad's components."""
        loaded, accumulator = self.choice.choice(LOADED), self.choice.choice(QUADS)
        offset = 16 * self.choice.randrange(0, 64)
        if self.choice.random() < 0.7:
            self.add(load_b128(loaded, LANE16, DATA, offset))
        words = range(4) if self.choice.random() < 0.7 else self.choice.sample(range(4), 2)
        for word in words:
            self.add(vop2("v_mul_f32", accumulator + word, 240, accumulator + word))
        shift = self.choice.choice((0, 0, 0, 1))  # now and then the components do not match
        for word in words:
            x = V + loaded + (word + shift) % 4
            self.add(vop2("v_add_f32", accumulator + word, x, accumulator + word))

    def add_float_loop(self, depth: int, uniform: bool) -> None:
        """Emit a dot product: products of 128-bit loads, added in whole quads, rarely more."""
        counter, choice = 50 + depth, self.choice
        first, second = LOADED
        body = load_b128(first, LANE16, DATA, 16 * choice.randrange(64))
        body += load_b128(second, LANE16, DATA, 16 * choice.randrange(64))
        for accumulator in choice.sample(QUADS, choice.randrange(1, 4)):
            order = list(range(4))
            choice.shuffle(order)
            if choice.random() < 0.5:
                for word in order:
                    body.append(vop2("v_fmac_f32", accumulator + word, V + first + word, second + word))
            else:
                for word in order:
                    body.append(vop2("v_mul_f32", second + word, V + first + word, second + word))
                for word in order:
                    body.append(vop2("v_sub_f32", accumulator + word, V + second + word, accumulator + word))
            if choice.random() < 0.3:
                for word in order:
                    body.append(vop2("v_mul_f32", accumulator + word, 240, accumulator + word))
            if choice.random() < 0.2:
                integer = choice.choice(INTEGERS)
                body.append(vop2("v_xor_b32", integer, V + accumulator + choice.randrange(4), integer))
            if choice.random() < 0.1:
                body.append(vop2("v_add_f32", accumulator + 1, V + accumulator, accumulator + 1))
        if choice.random() < 0.2 and uniform and self.barriers:
            body += [sop1("s_barrier_signal", 0, encode_constant(-1)), sopp("s_barrier_wait", 0xFFFF)]
        self.add(sop1("s_mov_b32", counter, encode_constant(choice.randrange(1, 4))), body)
        self.add(
            sop2("s_sub_co_u32", counter, counter, encode_constant(1)),
            sopc("s_cmp_lg_u32", counter, encode_constant(0)),
        )
        self.add(sopp("s_cbranch_scc1", -len(body) - 3))

    def _nested_words(self, depth: int, uniform: bool) -> list[int]:
        """Return the words of a nested list of statements."""
        inner = ProgramWriter(self.choice, self.wide, self.barriers)
        inner.add_statements(depth, uniform, self.choice.randrange(1, 4))
        return inner.words

    def add_divergent(self, depth: int, uniform: bool) -> None:
        """if (vcc) … [else …], with or without branches around."""
        saved = 62 + 2 * depth
        self.add_compare()
        self.add(sop1(self.mask_opcode("s_and_saveexec"), saved, VCC))
        body = self._nested_words(depth, False)
        if self.choice.random() < 0.5:
            self.add(sopp("s_cbranch_execz", len(body)))
        self.add(body)
        if self.choice.random() < 0.5:
            self.add(sop2(self.mask_opcode("s_xor"), EXEC, EXEC, saved), self._nested_words(depth, False))
        if self.choice.random() < 0.5:
            self.add(sop1(self.mask_opcode("s_mov"), EXEC, saved))
        else:
            self.add(sop2(self.mask_opcode("s_or"), EXEC, EXEC, saved))

    def add_uniform_branch(self, depth: int, uniform: bool) -> None:
        body, other = self._nested_words(depth, uniform), self._nested_words(depth, uniform)
        first, second = self.choice.choice(SCALARS), self.choice.choice(SCALARS)
        self.add(sopc("s_cmp_gt_u32", first, second), sopp("s_cbranch_scc1", len(body) + 1))
        self.add(body, sopp("s_branch", len(other)), other)

    def add_loop(self, depth: int, uniform: bool) -> None:
        counter = 50 + depth
        body = self._nested_words(depth, uniform)
        self.add(sop1("s_mov_b32", counter, encode_constant(self.choice.randrange(1, 4))), body)
        self.add(
            sop2("s_sub_co_u32", counter, counter, encode_constant(1)),
            sopc("s_cmp_lg_u32", counter, encode_constant(0)),
        )
        self.add(sopp("s_cbranch_scc1", -len(body) - 3))

    def add_lane_loop(self, depth: int, uniform: bool) -> None:
        """Lanes leave the loop one after another, according to a counter per lane."""
        saved, counter = 72 + 2 * depth, COUNTER + 2 + depth
        self.add(vop2("v_and_b32", counter, encode_constant(3), self.choice.choice(INTEGERS)))
        self.add(sop1(self.mask_opcode("s_mov"), saved, EXEC))
        body = self._nested_words(depth, False)
        body.append(vopc("v_cmp_lt_u32", encode_constant(0), counter))
        body.append(sop2(self.mask_opcode("s_and"), EXEC, EXEC, VCC))
        body.append(vop2("v_add_nc_u32", counter, encode_constant(-1), counter))
        self.add(body, sopp("s_cbranch_execnz", -len(body) - 1), sop1(self.mask_opcode("s_mov"), EXEC, saved))


def random_program(seed: int, *, wave: int = 32, barriers: bool = False, size: int = 6) -> bytes:
    """`size`: statements, nested ones not counted.

    User data: s[0:1] is the address for the results, [len(STORED) + len(SCALARS), threads] dwords; s[2:3] points
    to DATA_DWORDS floats; s4 is the number of threads in the workgroup.
    """
    choice = random.Random(seed)
    writer = ProgramWriter(choice, wave == 64, barriers)
    writer.add(sop1("s_mov_b64", ENTRY_EXEC, EXEC))
    for index in SCALARS:
        writer.add(s_move(index, choice.getrandbits(32)))
    writer.add(
        vop2("v_lshlrev_b32", LANE4, encode_constant(2), 0), vop2("v_lshlrev_b32", LANE16, encode_constant(4), 0)
    )
    for index in INTEGERS:
        writer.add([vop2("v_mul_u32_u24", index, LITERAL, 0), choice.getrandbits(24)])
        writer.add([vop2("v_xor_b32", index, LITERAL, index), choice.getrandbits(32)])
    for first in (*LOADED, *QUADS):
        writer.add(load_b128(first, LANE16, DATA, 16 * choice.randrange(64)))
    writer.add_statements(0, True, size)
    writer.add(sop1("s_mov_b64", EXEC, ENTRY_EXEC))
    writer.add(
        sop2("s_lshl_b32", 5, 4, encode_constant(2)),
        sop1("s_mov_b32", 6, 5),
        sop1("s_mov_b32", 7, encode_constant(0)),
    )
    for index in (*STORED, *(-scalar for scalar in SCALARS)):
        if index < 0:
            writer.add(v_mov(COUNTER, -index))
        writer.add(store_b32(COUNTER if index < 0 else index, LANE4, OUT, 0))
        writer.add(sop2("s_add_nc_u64", OUT, OUT, 6))
    return code_of(writer.words, ENDPGM)


def output_buffer(threads: int) -> np.ndarray:
    return np.zeros((len(STORED) + len(SCALARS), threads), np.uint32)


def input_data() -> np.ndarray:
    return np.random.default_rng(11).uniform(-2, 2, DATA_DWORDS).astype(np.float32)
