"""Which registers an instruction reads and writes, worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from compiled import is_compiler_available

from zinc_rt.isa import Instruction, decode_stream, target_of
from zinc_rt.isa.effects import EXEC, M0, SCC, TTMP, VCC, VGPR, Effects, effects, format_registers
from zinc_rt.isa.elf import read_elf

pytestmark = pytest.mark.skipif(not is_compiler_available(), reason='no assembler: extra "asm" is not installed')

# text: reads, writes, pipe. s3, v3, vcc, exec, scc, m0, ttmp9; ranges s2-5.
CASES = {
    "s_mov_b32 s4, 5": ("", "s4", "salu"),
    "s_mov_b64 s[4:5], exec": ("exec exec_hi", "s4-5", "salu"),
    "s_add_co_i32 s4, s5, s6": ("s5 s6", "s4 scc", "salu"),
    "s_add_co_ci_u32 s4, s5, s6": ("s5 s6 scc", "s4 scc", "salu"),
    "s_add_f32 s4, s5, s6": ("s5 s6", "s4", "salu"),
    "s_mul_i32 s4, s5, ttmp9": ("s5 ttmp9", "s4", "salu"),
    "s_lshl_b64 s[4:5], s[6:7], 3": ("s6-7", "s4-5 scc", "salu"),
    "s_cselect_b32 s4, s5, s6": ("s5 s6 scc", "s4", "salu"),
    "s_cmp_eq_u32 s4, s5": ("s4 s5", "scc", "salu"),
    "s_cmov_b32 s4, s5": ("s4 s5 scc", "s4", "salu"),
    "s_fmac_f32 s4, s5, s6": ("s4 s5 s6", "s4", "salu"),
    "s_addk_co_i32 s4, 5": ("s4", "s4 scc", "salu"),
    "s_movk_i32 s4, 5": ("", "s4", "salu"),
    "s_and_saveexec_b32 s4, s5": ("s5 exec", "s4 exec scc", "salu"),
    "s_cbranch_vccnz 0": ("vcc", "", "salu"),
    "s_cbranch_scc0 0": ("scc", "", "salu"),
    "s_barrier_signal -1": ("", "", "salu"),
    "s_barrier_signal_isfirst -1": ("", "scc", "salu"),
    "s_setreg_b32 hwreg(HW_REG_WAVE_MODE), s4": ("s4", "", "salu"),
    "s_getreg_b32 s4, hwreg(HW_REG_WAVE_MODE)": ("", "s4", "salu"),
    "s_load_b128 s[4:7], s[0:1], s9 offset:4": ("s0-1 s9", "s4-7", "smem"),
    "s_prefetch_data s[0:1], 0, s9, 3": ("s0-1 s9", "", "smem"),
    "v_mov_b32 v1, m0": ("m0 exec", "v1", "valu"),
    "v_add_f32 v1, s4, v2": ("s4 v2 exec", "v1", "valu"),
    "v_fmac_f32 v1, v3, v2": ("v1 v3 v2 exec", "v1", "valu"),
    "v_fma_f64 v[2:3], v[4:5], s[6:7], v[8:9]": ("v4-5 s6-7 v8-9 exec", "v2-3", "valu"),
    "v_cmp_lt_f32 vcc_lo, v1, v2": ("v1 v2 exec", "vcc", "valu"),
    "v_cmp_lt_f32 s4, v1, v2": ("v1 v2 exec", "s4", "valu"),
    "v_cmpx_lt_f32 v1, v2": ("v1 v2 exec", "exec", "valu"),
    "v_cndmask_b32 v1, v2, v3, vcc_lo": ("v2 v3 vcc exec", "v1", "valu"),
    "v_add_co_u32 v1, s4, v2, v3": ("v2 v3 exec", "v1 s4", "valu"),
    "v_add_co_ci_u32 v1, vcc_lo, v2, v3, vcc_lo": ("v2 v3 vcc exec", "v1 vcc", "valu"),
    "v_add_co_ci_u32 v1, null, v2, v3, s4": ("v2 v3 s4 exec", "v1 null", "valu"),
    "v_div_scale_f32 v1, vcc_lo, v2, v3, v2": ("v2 v3 exec", "v1 vcc", "valu"),
    "v_div_fmas_f32 v1, v2, v3, v4": ("v2 v3 v4 vcc exec", "v1", "valu"),
    "v_mad_co_u64_u32 v[2:3], null, s4, v5, v[0:1]": ("s4 v5 v0-1 exec", "v2-3 null", "valu"),
    "v_readlane_b32 s4, v1, s5": ("v1 s5 exec", "s4", "valu"),
    "v_readfirstlane_b32 s4, v1": ("v1 exec", "s4", "valu"),
    "v_writelane_b32 v1, s4, 3": ("s4 exec", "v1", "valu"),
    "v_swap_b32 v1, v2": ("v1 v2 exec", "v1 v2", "valu"),
    "v_add_f32_dpp v1, v2, v3 row_shr:1": ("v2 v3 exec", "v1", "valu"),
    "v_dual_add_f32 v0, v4, v1 :: v_dual_fmac_f32 v3, s4, v2": ("v4 v1 s4 v2 v3 exec", "v0 v3", "valu"),
    "v_dual_mov_b32 v0, s4 :: v_dual_cndmask_b32 v3, v1, v2": ("s4 v1 v2 vcc exec", "v0 v3", "valu"),
    "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]": ("v8-11 v12-15 v0-7 exec", "v0-7", "valu"),
    "v_swmmac_f32_16x16x32_f16 v[0:7], v[8:11], v[12:19], v20": ("v0-7 v8-11 v12-19 v20 exec", "v0-7", "valu"),
    "global_load_b64 v[2:3], v0, s[4:5]": ("v0 s4-5 exec", "v2-3", "vmem"),
    "global_load_b64 v[2:3], v[0:1], off": ("v0-1 exec", "v2-3", "vmem"),
    "global_store_b128 v0, v[4:7], s[4:5]": ("v0 v4-7 s4-5 exec", "", "vmem"),
    "global_atomic_add_u32 v0, v1, s[4:5]": ("v0 v1 s4-5 exec", "", "vmem"),
    "global_atomic_add_u32 v2, v0, v1, s[4:5] th:TH_ATOMIC_RETURN": ("v0 v1 s4-5 exec", "v2", "vmem"),
    "flat_atomic_cmpswap_b32 v2, v[0:1], v[4:5] th:TH_ATOMIC_RETURN": ("v0-1 v4-5 exec", "v2", "vmem"),
    "scratch_store_b32 off, v1, s4": ("v1 s4 exec", "", "vmem"),
    "buffer_load_b32 v1, v2, s[4:7], s8 offen": ("v2 s4-7 s8 exec", "v1", "vmem"),
    "buffer_store_b32 v1, v2, s[4:7], s8 offen": ("v1 v2 s4-7 s8 exec", "", "vmem"),
    "buffer_atomic_swap_b32 v1, off, s[4:7], null th:TH_ATOMIC_RETURN": ("v1 s4-7 null exec", "v1", "vmem"),
    "global_inv scope:SCOPE_DEV": ("exec", "", "vmem"),
    "ds_load_2addr_b32 v[2:3], v0 offset1:1": ("v0 exec", "v2-3", "lds"),
    "ds_store_b64 v0, v[2:3]": ("v0 v2-3 exec", "", "lds"),
    "ds_add_rtn_u32 v1, v0, v2": ("v0 v2 exec", "v1", "lds"),
    "ds_bpermute_b32 v1, v0, v2": ("v0 v2 exec", "v1", "lds"),
}
_NAMED = {"vcc": VCC, "exec": EXEC, "exec_hi": EXEC + 1, "scc": SCC, "m0": M0, "null": 124}


def parse_registers(text: str) -> int:
    result = 0
    for word in text.split():
        if word in _NAMED:
            result |= 1 << _NAMED[word]
            continue
        base = TTMP if word.startswith("ttmp") else VGPR if word[0] == "v" else 0
        first, _, last = word.lstrip("tmpsv").partition("-")
        result |= sum(1 << base + register for register in range(int(first), int(last or first) + 1))
    return result


@cache
def assemble_cases() -> dict[str, tuple[Instruction, Effects]]:
    target = target_of("gfx1201", 32)
    with TemporaryDirectory() as folder:
        path, built = Path(folder) / "cases.s", Path(folder) / "cases.o"
        path.write_text("\n".join(CASES) + "\n")
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
        subprocess.run([*command, "-c", str(path), "-o", str(built)], check=True)
        code = read_elf(built.read_bytes(), "cases").sections[0].code
    instructions = [item.instruction for item in decode_stream(code, target) if item.instruction is not None]
    return {text: (result, effects(result, target)) for text, result in zip(CASES, instructions, strict=True)}


@pytest.mark.parametrize("text", CASES)
def test_effects_match_hand_written_cases(text: str) -> None:
    reads, writes, pipe = CASES[text]
    output, result = assemble_cases()[text]
    null = 1 << 124
    assert format_registers(result.reads & ~null) == format_registers(parse_registers(reads) & ~null)
    assert format_registers(result.writes & ~null) == format_registers(parse_registers(writes) & ~null)
    assert output.row.pipe == pipe


def test_masks_are_register_pairs_in_wave64() -> None:
    target = target_of("gfx1201", 64)
    (item,) = decode_stream(bytes.fromhex("0005047c"), target)  # v_cmp_lt_f16 vcc, v0, v2: VOPC writes VCC
    assert item.instruction is not None
    assert effects(item.instruction, target).writes == 3 << VCC
    assert effects(item.instruction, target).reads >> EXEC & 3 == 3
    (item,) = decode_stream(bytes.fromhex("050037d601050e04"), target)  # v_div_fmas_f32 v5, v1, v2, v3
    assert item.instruction is not None
    assert effects(item.instruction, target).reads >> VCC & 3 == 3


def test_register_sets_are_formatted_as_ranges() -> None:
    assert format_registers(parse_registers("s2-5 s7 vcc v1 v4-6 scc")) == "s[2:5], s7, vcc_lo, scc, v1, v[4:6]"
