"""LLVM's own encodings of the vector and scalar ALU, run on engine and model: every kind of operand there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from instruction_inputs import random_inputs
from instruction_kernels import INPUTS, input_bytes
from instruction_lists import SOP1, SOP2, SOPC, VOP1, VOP2, VOP3, VOP3P, VOPC, VOPD, compare_of, split_mnemonics
from sim.shader_model.model_device import ModelDevice
from sim.shader_model.model_valu import base_name
from support import Counts
from test_shader_instructions import equal_lanes, equal_pairs

from zinc_rt.isa import Instruction, Kind, Operand, decode, target_of
from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
WAVE32 = target_of("gfx1201")
FAMILIES = (VOP1, VOP2, VOPC, VOP3, VOP3P, SOP1, SOP2, SOPC)
WANTED = {name for text in FAMILIES for name in split_mnemonics(text)} | {
    f"v_dual_{name}" for name in split_mnemonics(VOPD)
}
# Not here: what M0 or a lane number in a register leads anywhere, and what has no value of its own.
LEFT_OUT = ("movrel", "v_nop", "s_setreg", "s_getreg")
FIRST_INPUT, FIRST_RESULT, LAST_RESULT = 160, 192, 247  # VGPRs of the frame
SCALAR_INPUT = 60  # SGPRs of the frame: 32 inputs, then two that keep EXEC and SCC
RESERVED_SGPRS = range(SCALAR_INPUT, 100)
OUT_BYTES = (LAST_RESULT + 1 - FIRST_RESULT) * 32 * 4


@dataclass(frozen=True, slots=True)
class LlvmVector:
    text: str
    code: bytes
    instruction: Instruction
    vgprs: tuple[int, ...]  # all that it names
    sgprs: tuple[int, ...]
    written: int  # how many VGPRs the destination has


def instruction_halves(instruction: Instruction) -> Iterator[Instruction]:
    yield instruction
    if instruction.second is not None:
        yield instruction.second


def named_registers(operands: tuple[Operand, ...]) -> tuple[set[int], set[int]] | None:
    """Return the VGPRs and SGPRs (including M0 and VCC) of the operands; None if the frame cannot have them."""
    vgprs: set[int] = set()
    sgprs: set[int] = set()
    for operand in operands:
        names = range(operand.index, operand.index + operand.width)
        if "Invalid" in operand.text or operand.kind in (Kind.TTMP, Kind.NAME):
            return None
        if operand.kind is Kind.VGPR:
            vgprs.update(names)
        elif operand.kind is Kind.SGPR:
            sgprs.update(names)
        elif operand.kind is Kind.SPECIAL:
            if operand.text.startswith("src_") and operand.index != 253:
                return None
            sgprs.update(i for i in names if i in (106, 107, 125))
    if any(FIRST_INPUT <= v <= 252 or v > 255 for v in vgprs) or any(s in RESERVED_SGPRS for s in sgprs):
        return None
    return vgprs, sgprs


def make_vector(hexadecimal: str, text: str) -> LlvmVector | None:
    code = bytes.fromhex(hexadecimal)
    instruction = decode(code, 0, WAVE32)
    if instruction is None or instruction.size_bytes != len(code) or "nvalid" in text:
        return None
    vgprs: set[int] = set()
    sgprs: set[int] = {106}
    for half in instruction_halves(instruction):
        name = base_name(half.mnemonic)
        if name not in WANTED or any(part in name for part in LEFT_OUT):
            return None
        result = named_registers(half.operands)
        if result is None or (
            half.operands and half.operands[0].kind is Kind.SPECIAL and half.operands[0].index == 124
        ):
            return None
        vgprs |= result[0]
        sgprs |= result[1]
    first = instruction.operands[0] if instruction.operands else None
    if first is not None and first.kind is Kind.SPECIAL and first.index == 127:
        return None  # EXEC_HI is nothing in wave32
    width = first.width if first is not None and first.kind is Kind.VGPR else 0
    return LlvmVector(text, code, instruction, tuple(sorted(vgprs)), tuple(sorted(sgprs)), width)


def load_vectors(folder: Path) -> list[LlvmVector]:
    result = []
    for line in (folder / "gfx12" / "gfx1201_w32.tsv").read_text().splitlines():
        if not line.startswith("#"):
            vector = make_vector(*line.split("\t")[:2])
            if vector is not None:
                result.append(vector)
    return result


# --- a kernel of many vectors ---------------------------------------------------------------------------------


def v_mov(to: int, source: int) -> int:
    """`source` as a source code: 256 and up are VGPRs."""
    return 0x7E000200 | to << 17 | source


def s_mov(to: int, source: int) -> int:
    return 0xBE800000 | to << 16 | source


S_CSELECT_1_0 = 0x98000000 | 128 << 8 | 129  # s_cselect_b32 sdst, 1, 0
S_CMP_EQ_1 = 0xBF060000 | 129 << 8  # s_cmp_eq_u32 ssrc, 1
EXEC_LO, MINUS_ONE = 126, 193
KEPT_EXEC, KEPT_SCC = 92, 93
LANE, LANE_4, LANE_16 = 250, 251, 252  # VGPRs: the lane's number, times 4, times 16


def encode_prologue() -> list[int]:
    """Load inputs to v160 to v191 and s60 to s91, and the output address to s[98:99]."""
    words = [0x360000FF | LANE << 17, 0x3FF]  # v_and_b32 v250, 0x3ff, v0
    words += [0x30000082 | LANE_4 << 17 | LANE << 9, 0x30000084 | LANE_16 << 17 | LANE << 9]  # v_lshlrev_b32
    for to, source, size_bytes in ((96, 0, input_bytes(32)), (98, 2, OUT_BYTES)):
        words += [0x9600FF75 | 40 << 16, size_bytes]  # s_mul_i32 s40, ttmp9, size
        words += [0x80000000 | to << 16 | 40 << 8 | source, 0x82000000 | to + 1 << 16 | 128 << 8 | source + 1]
    for to, index in ((0, 0), (16, 64)):  # s_load_b512 s[to:to+15], s[96:97], offset
        words += [0xF4008000 | to << 6 | 96 >> 1, 124 << 25 | INPUTS * 32 * 4 + index]
    for i in range(32):  # global_load_b32 v[160 + i], v251, s[96:97] offset:128 * i
        words += [0xEE050000 | 96, FIRST_INPUT + i, i * 128 << 8 | LANE_4]
    words += [0xBFC00000, 0xBFC70000]  # s_wait_loadcnt 0, s_wait_kmcnt 0
    return words + [s_mov(SCALAR_INPUT + i, i) for i in range(32)]


def encode_epilogue(end: int) -> list[int]:
    words = []
    for i in range(FIRST_RESULT, end, 4):  # global_store_b128 v252, v[i:i+3], s[98:99] offset
        words += [0xEE074000 | 98, i << 23, (i - FIRST_RESULT) * 128 << 8 | LANE_16]
    return [*words, 0xBFB00000]


def result_count(vector: LlvmVector) -> int:
    return len(vector.vgprs) + len(vector.sgprs) + 2


def encode_words(vector: LlvmVector, first: int, number: int) -> list[int]:
    """Load inputs into its registers, run it under a mask, and copy the registers that it may have changed to
    result registers.
    """
    out = [v_mov(v, 256 + FIRST_INPUT + (7 * number + 3 * i) % 32) for i, v in enumerate(vector.vgprs)]
    out += [s_mov(s, SCALAR_INPUT + (5 * number + i) % 32) for i, s in enumerate(vector.sgprs)]
    out += [S_CMP_EQ_1 | SCALAR_INPUT + 25, s_mov(EXEC_LO, SCALAR_INPUT + 20)]
    out += np.frombuffer(vector.code, np.uint32).tolist()
    out += [s_mov(KEPT_EXEC, EXEC_LO), S_CSELECT_1_0 | KEPT_SCC << 16, s_mov(EXEC_LO, MINUS_ONE)]
    sources = [256 + v for v in vector.vgprs] + list(vector.sgprs) + [KEPT_EXEC, KEPT_SCC]
    return out + [v_mov(first + i, source) for i, source in enumerate(sources)]


Batch = list[tuple[LlvmVector, int]]  # with the first result register


def split_batches(chosen: list[LlvmVector]) -> Iterator[Batch]:
    batch: Batch = []
    index = FIRST_RESULT
    for vector in chosen:
        if index + result_count(vector) > LAST_RESULT + 1:
            yield batch
            batch, index = [], FIRST_RESULT
        batch.append((vector, index))
        index += result_count(vector)
    if batch:
        yield batch


def build_kernel(batch: Batch) -> bytes:
    words = encode_prologue()
    for number, (vector, first) in enumerate(batch):
        words += encode_words(vector, first, number)
    last, first = batch[-1]
    return np.array(words + encode_epilogue(first + result_count(last)), np.uint32).tobytes()


def run_code(device: ModelDevice | EngineDevice, code: bytes, data: Array) -> Array:
    """uint32 [trials, result register, lane]"""
    trials = len(data)
    out = np.zeros((trials, (LAST_RESULT + 1 - FIRST_RESULT) // 4, 32, 4), np.uint32)
    words = [part for array in (data, out) for part in split_va(device.place(array))]
    findings = device.run(code, groups=(trials, 1, 1), user_data=words)
    assert not findings, "\n".join(finding.sentence for finding in findings)
    return out.transpose(0, 1, 3, 2).reshape(trials, -1, 32)


def split_va(va: int) -> tuple[int, int]:
    return va & 0xFFFFFFFF, va >> 32


def is_equal(vector: LlvmVector, got: Array, want: Array) -> bool:
    """[registers, lanes] of one vector: NaNs that arithmetic made are equal."""
    destination = vector.instruction.operands[0] if vector.instruction.operands else None
    result = set()
    for half in instruction_halves(vector.instruction):
        if half.operands and half.operands[0].kind is Kind.VGPR:
            result |= set(range(half.operands[0].index, half.operands[0].index + half.operands[0].width))
    name = base_name(vector.instruction.mnemonic)
    how = (
        "close"
        if "dot2acc" in vector.text
        else "f32"
        if vector.instruction.second is not None
        else compare_of(name)
    )
    if name.startswith("v_fma_mix"):
        how = "f32" if name.endswith("f32") else "f16x2"
    if name.startswith("s_"):
        how = "f16x2" if name.endswith("f16_f32") else "f32" if "f32" in name or "f16" in name else "bits"
    for index in range(len(got)):
        register = vector.vgprs[index] if index < len(vector.vgprs) else None
        kind = how if register in result or name.startswith("s_") else "bits"
        if kind == "f64":
            assert destination is not None
            if register == destination.index + 1 or destination.width == 1:
                continue
            same = equal_pairs(got[index : index + 2], want[index : index + 2])
        else:
            same = equal_lanes(kind, got[index], want[index])
        if not same.all():
            return False
    return True


def test_frame_disassembles_as_documented() -> None:
    code = np.array(encode_prologue() + encode_epilogue(FIRST_RESULT + 8), np.uint32).tobytes()
    texts, index = [], 0
    while index < len(code):
        instruction = decode(code, index, WAVE32)
        assert instruction is not None, f"byte {index:#x}"
        texts.append(instruction.text)
        index += instruction.size_bytes
    assert texts[0] == "v_and_b32_e32 v250, 0x3ff, v0" and texts[-1] == "s_endpgm"
    assert f"global_load_b32 v161, v251, s[96:97] offset:{128}" in texts
    assert f"global_store_b128 v252, v[196:199], s[98:99] offset:{4 * 128}" in texts
    assert f"s_load_b512 s[16:31], s[96:97], {INPUTS * 128 + 64:#x}" in texts


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("part", range(4))
def test_engine_and_model_agree_on_llvm_vectors(part: int, data_dir: Path, slow_counts: Counts) -> None:
    every = load_vectors(data_dir)
    assert len(every) > 8000
    chosen = every[part :: slow_counts(480, 4)]
    data = random_inputs(32, slow_counts(5, 8), seed=part)
    wrong = []
    for batch in split_batches(chosen):
        code = build_kernel(batch)
        wanted = run_code(ModelDevice(), code, data.copy())
        got = run_code(EngineDevice(level="off"), code, data.copy())
        for vector, first in batch:
            here = slice(first - FIRST_RESULT, first - FIRST_RESULT + result_count(vector))
            with np.errstate(all="ignore"):
                bad = [t for t in range(len(data)) if not is_equal(vector, got[t, here], wanted[t, here])]
            if bad:
                a, b = got[bad[0], here], wanted[bad[0], here]
                location, lane = np.argwhere(a != b)[0]
                seen = f"{a[location, lane]:#010x} for {b[location, lane]:#010x}"
                wrong.append(f"{vector.text}: trial {bad[0]}, result {location}, lane {lane}: {seen}")
    assert not wrong, f"{len(wrong)} of {len(chosen)} differ:\n" + "\n".join(wrong[:30])
