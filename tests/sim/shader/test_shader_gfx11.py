"""Rules of gfx11 waves (isa/wave_rules.py): each program has another result, or none, by the rules of gfx12."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from shader_launch import ACQUIRE, ShaderStage, open_machine, open_stage, split_va

from zinc_rt.isa import target_of
from zinc_rt.isa.elf import read_elf
from zinc_rt.isa.lint import LintFinding, lint
from zinc_rt.isa.target import Target
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.shader.launch_setup import Refused, place_ids, setup_of_dispatch, setup_of_registers
from zinc_rt.sim.shader.layout import DX10_CLAMP, IEEE, NULL
from zinc_rt.sim.shader.run.engine_device import EngineDevice
from zinc_rt.sim.shader_engine import ShaderDispatch
from zinc_rt.sim.tables.registers import PGM_RSRC1, PGM_RSRC2, PGM_RSRC3, TMPRING_SIZE

Array = np.ndarray
needs_assembler = pytest.mark.skipif(find_spec("ziglang") is None, reason='no assembler: extra "asm" is missing')
CHIPS = ("gfx1100", "gfx1151")
KEPT = 0xF0  # FLOAT_MODE: to nearest even, denormals kept
SIGNALLING, QUIET, OTHER_QUIET, ONE = 0x7F800001, 0x7FC00001, 0x7FC00002, 0x3F800000
STORE = "v_lshlrev_b32 v0, 2, v0\n global_store_b32 v0, v1, s[0:1]\n s_endpgm"


@cache
def assemble(chip: str, source: str, wave: int = 32) -> bytes:
    """Return the code of a kernel without headers."""
    with TemporaryDirectory() as folder:
        path, built = Path(folder) / "k.s", Path(folder) / "k.o"
        path.write_text(f"kernel:\n{source}\n")
        size = ["-mwavefrontsize64"] if wave == 64 else []
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", f"-mcpu={chip}", *size]
        subprocess.run([*command, "-c", str(path), "-o", str(built)], check=True)
        return read_elf(built.read_bytes(), "kernel").sections[0].code


def run(
    chip: str,
    body: str,
    *,
    mode: int = KEPT | DX10_CLAMP | IEEE,
    wave: int = 32,
    data: Array | None = None,
    findings: Sequence[str] = (),
    threads: int = 0,
    groups: Sequence[int] = (1, 1, 1),
    lds_bytes: int = 0,
    words: int = 0,
    store: str = STORE,
) -> Array:
    """Run a program that leaves its result in v1; s[0:1] is the output, s[2:3] the address of `data`. Return the
    output as uint32.
    """
    device = EngineDevice(target=target_of(chip, wave))
    threads = threads or wave
    out = np.zeros(words or threads, np.uint32)
    addresses = [device.place(out, "out")]
    if data is not None:
        addresses.append(device.place(data, "data"))
    user_data = [half for va in addresses for half in (va & 0xFFFFFFFF, va >> 32)]
    found = device.run(
        assemble(chip, f"{body}\n{store}", wave), user_data=user_data, mode=mode, wave=wave,
        threads=(threads, 1, 1), groups=groups, lds_bytes=lds_bytes, vgprs=64,
    )  # fmt: skip
    assert [item.rule for item in found] == list(findings), [item.sentence for item in found]
    return out


def move(register: int, value: int) -> str:
    return f"v_mov_b32 v{register}, {value:#x}\n"


NAN_AND_ONE = move(2, SIGNALLING) + move(3, ONE)
TWO_NANS = move(2, QUIET) + move(3, OTHER_QUIET)
# name: program, MODE, result
FLOATS = {
    "minimum, IEEE": (NAN_AND_ONE + "v_min_f32 v1, v2, v3", KEPT | IEEE, QUIET),
    "minimum": (NAN_AND_ONE + "v_min_f32 v1, v2, v3", KEPT, ONE),
    "maximum of two NaNs": (TWO_NANS + "v_max_f32 v1, v2, v3", KEPT | IEEE, OTHER_QUIET),
    "second operand signals": (NAN_AND_ONE + "v_max_f32 v1, v3, v2", KEPT | IEEE, QUIET),
    "minimum of three, IEEE": (NAN_AND_ONE + "v_min3_f32 v1, 0, v2, v3", KEPT | IEEE, ONE),
    "median with a NaN": (TWO_NANS + "v_med3_f32 v1, 1.0, 2.0, v2", KEPT | IEEE, ONE),
    "dual minimum, IEEE": (
        NAN_AND_ONE + "v_dual_min_f32 v1, v2, v3 :: v_dual_mov_b32 v4, v5", KEPT | IEEE, QUIET,
    ),
    "half minimum, IEEE": (
        move(2, 0x7C01) + move(3, 0x3C00) + "v_pk_min_f16 v1, v2, v3", KEPT | IEEE, 0x7E01,
    ),
    "clamp with DX10_CLAMP": (TWO_NANS + "v_add_f32_e64 v1, v2, v3 clamp", KEPT | DX10_CLAMP, 0),
    "clamp without DX10_CLAMP": (TWO_NANS + "v_max_f32_e64 v1, v2, v2 clamp", KEPT, QUIET),
    "omod, IEEE": (move(2, 0x40400000) + "v_mul_f32_e64 v1, 1.0, v2 mul:2", KEPT | IEEE, 0x40400000),
    "omod": (move(2, 0x40400000) + "v_mul_f32_e64 v1, 1.0, v2 mul:2", KEPT, 0x40C00000),
    "DX9 multiply and add": (
        move(1, ONE) + move(2, QUIET) + "v_fmac_dx9_zero_f32 v1, 0, v2", KEPT, ONE,
    ),
    "DOT2ACC": (
        move(1, ONE) + move(2, 0x40003C00) + move(3, 0x44004200) + "v_dot2acc_f32_f16 v1, v2, v3", KEPT,
        0x41400000,
    ),
    "compare false": ("v_cmp_f_f32 vcc_lo, v0, v0\n v_cndmask_b32 v1, 5, 6, vcc_lo", KEPT, 5),
    "compare true": (move(2, QUIET) + "v_cmp_t_f32 vcc_lo, v2, v2\n v_cndmask_b32 v1, 5, 6, vcc_lo", KEPT, 6),
    "IEEE changed": (
        "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 9, 1), 0\n" + NAN_AND_ONE + "v_min_f32 v1, v2, v3",
        KEPT | IEEE, ONE,
    ),
}  # fmt: skip
SCALARS = {
    "carry": ("s_add_u32 s4, -1, 1\n s_addc_u32 s4, 5, 6", 12),
    "borrow": ("s_sub_u32 s4, 0, 1\n s_subb_u32 s4, 7, 3", 3),
    "compare with a constant": ("s_mov_b32 s4, -5\n s_cmpk_lt_i32 s4, -4\n s_cselect_b32 s4, 3, 4", 3),
    "unsigned constant": ("s_mov_b32 s4, 0xfffb\n s_cmpk_eq_u32 s4, 0xfffb\n s_cselect_b32 s4, 3, 4", 3),
    "add a constant": ("s_mov_b32 s4, 5\n s_addk_i32 s4, -7", 0xFFFFFFFE),
    "s102": ("s_mov_b32 s102, 17\n s_mov_b32 s4, s102", 17),
    "MODE": ("s_getreg_b32 s4, hwreg(HW_REG_MODE, 8, 2)", 3),
    "position in the workgroup": ("s_getreg_b32 s4, hwreg(HW_REG_SHADER_CYCLES)\n s_lshr_b32 s4, s4, 20", 0),
}


@needs_assembler
@pytest.mark.parametrize("name", FLOATS)
def test_float_rules(name: str) -> None:
    body, mode, expected = FLOATS[name]
    for chip in CHIPS:
        assert {hex(value) for value in run(chip, body, mode=mode)} == {hex(expected)}, chip


@needs_assembler
@pytest.mark.parametrize("name", SCALARS)
def test_scalar_rules(name: str) -> None:
    body, expected = SCALARS[name]
    for chip in CHIPS:
        assert set(run(chip, f"{body}\n v_mov_b32 v1, s4")) == {expected}, chip


@needs_assembler
def test_gfx1151_alone_has_scalar_floats() -> None:
    body = f"s_mov_b32 s4, {SIGNALLING:#x}\n s_min_f32 s4, s4, 1.0\n v_mov_b32 v1, s4"
    assert set(run("gfx1151", body)) == {QUIET}
    assert set(run("gfx1151", body, mode=KEPT)) == {ONE}
    code = assemble("gfx1151", f"{body}\n{STORE}")
    assert "illegal" in {finding.rule for finding in lint(code, target_of("gfx1100"))}


@needs_assembler
def test_workgroup_ids_follow_user_data() -> None:
    store = "s_lshl_b32 s4, s3, 2\n v_mov_b32 v0, s4\n global_store_b32 v0, v1, s[0:1]\n s_endpgm"
    body = "s_mul_i32 s5, s3, 100\n s_add_i32 s5, s5, s2\n v_mov_b32 v1, s5"
    out = run("gfx1100", body, groups=(1, 3, 1), threads=1, words=3, store=store)
    assert out.tolist() == [0, 100, 200]
    assert place_ids(13, 0b1111) == (13, 14, 15, 16)
    assert place_ids(2, 0b0101) == (2, NULL, 3, NULL), "packed without gaps"


@needs_assembler
def test_trap_registers_read_zero() -> None:
    body = "v_mov_b32 v1, ttmp8\n s_mov_b32 ttmp8, 7\n v_add_nc_u32 v1, ttmp8, v1"
    assert not run("gfx1151", body, threads=64).any()


@needs_assembler
@pytest.mark.parametrize("wave", [32, 64])
def test_barrier_orders_waves(wave: int) -> None:
    body = """
      v_lshlrev_b32 v2, 2, v0
      ds_store_b32 v2, v0
      s_waitcnt lgkmcnt(0)
      s_barrier
      v_xor_b32 v2, 0x1fc, v2
      ds_load_b32 v1, v2
      s_waitcnt lgkmcnt(0)"""
    out = run("gfx1100", body, threads=128, lds_bytes=512, wave=wave)
    assert out.tolist() == list(range(127, -1, -1))
    without = body.replace("s_barrier", "s_nop 0")
    out = np.zeros(0)
    with pytest.raises(AssertionError, match="race"):
        run("gfx1100", without, threads=128, lds_bytes=512, wave=wave)


ATOMICS = {
    "no result without GLC": ("global_atomic_add_u32 v2, v3, s[2:3]", [7], [7 + 3]),
    "result with GLC": ("global_atomic_add_u32 v1, v2, v3, s[2:3] glc", [7], [7 + 3]),
    "clamped subtraction": ("global_atomic_csub_u32 v1, v2, v3, s[2:3] glc", [2], [0]),
    "float minimum, signalling": ("global_atomic_min_f32 v1, v2, v3, s[2:3] glc", [SIGNALLING], [QUIET]),
    "LDS wrap": (
        "v_mov_b32 v4, 10\n ds_store_b32 v2, v4\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v5, 100\n v_mov_b32 v3, 11\n"
        "ds_wrap_rtn_b32 v1, v2, v3, v5\n s_waitcnt lgkmcnt(0)\n ds_load_b32 v4, v2\n s_waitcnt lgkmcnt(0)\n"
        "global_store_b32 v2, v4, s[2:3]", [0], [110],
    ),
    "LDS compare floats": (
        "v_bfrev_b32 v4, 1\n ds_store_b32 v2, v4\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v5, 0\n v_mov_b32 v3, 11\n"
        "ds_cmpstore_f32 v2, v3, v5\n ds_load_b32 v4, v2\n s_waitcnt lgkmcnt(0)\n"
        "global_store_b32 v2, v4, s[2:3]\n v_bfrev_b32 v1, 1", [0], [11],
    ),
}  # fmt: skip


@needs_assembler
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name: str) -> None:
    body, before, after = ATOMICS[name]
    data = np.array(before, np.uint32)
    old = {"LDS wrap": 10, "LDS compare floats": 1 << 31, "no result without GLC": 55}.get(name, before[0])
    start = "v_mov_b32 v1, 55\n v_mov_b32 v2, 0\n v_mov_b32 v3, 3\n"
    out = run("gfx1100", start + body + "\n s_waitcnt vmcnt(0)", data=data, threads=1, lds_bytes=16)
    assert out.tolist() == [old] and data.tolist() == after


@needs_assembler
def test_buffer_offset_may_be_a_constant() -> None:
    data = np.arange(100, 132, dtype=np.uint32)
    body = "s_mov_b32 s6, 0x80\n s_mov_b32 s7, 0x31004000\n s_mov_b64 s[4:5], s[2:3]\n"
    body += "buffer_load_b32 v1, off, s[4:7], 64 offset:12\n s_waitcnt vmcnt(0)"
    assert set(run("gfx1100", body, data=data)) == {100 + (64 + 12) // 4}


@needs_assembler
def test_unsupported_instructions_are_named() -> None:
    device = EngineDevice(target=target_of("gfx1100"))
    for body, reason in (
        ("ds_add_u32 v0, v0 gds", "accesses the global data share"),
        ("lds_direct_load v1 wait_vdst:15", "lds_direct_load (LDS direct loads)"),
        ("s_getreg_b32 s4, hwreg(30)", "cannot read"),
        (".long 0xbc040000", "adds a register to its count"),  # s_waitcnt_vscnt s4, 0
    ):
        start = "s_mov_b32 s4, 0\n"
        found = device.run(assemble("gfx1100", f"{start}{body}\n s_endpgm"), vgprs=8)
        assert [item.rule for item in found] == ["illegal"] and reason in found[0].sentence, body


# --- matrices


def matrix_inputs(wave: int, result: str) -> tuple[Array, Array, Array, Array, Array]:
    """Return A, B, C as integers, and the registers [8, wave] of A and B as the layout of gfx11 has them."""
    random = np.random.default_rng(wave)
    a, b, c = (random.integers(-4, 5, (16, 16)) for _ in range(3))
    lane = np.arange(wave) % 16
    pairs = [np.stack([m[:, 0::2], m[:, 1::2]], -1).astype(np.float16) for m in (a, b.T)]
    words = [np.ascontiguousarray(pair).view(np.uint32)[:, :, 0][lane].T.copy() for pair in pairs]
    return a, b, c, words[0], words[1]


def run_matrix(wave: int, mnemonic: str, op_sel: str, words: Array, findings: Sequence[str] = ()) -> Array:
    """Run D = A * B + C on registers [8 of A, 8 of B, rows of C, rows of D before]; return those of D."""
    rows = 256 // wave
    count = len(words)
    loads = "\n".join(
        f"global_load_b32 v{10 + index}, v2, s[2:3]\n v_add_nc_u32 v2, {4 * wave}, v2" for index in range(count)
    )
    c, d = 26, 26 + rows
    body = f"""v_lshlrev_b32 v0, 2, v0
      v_mov_b32 v2, v0
      {loads}
      s_waitcnt vmcnt(0)
      {mnemonic} v[{d}:{d + rows - 1}], v[10:17], v[18:25], v[{c}:{c + rows - 1}] {op_sel}
      """
    store = "\n".join(
        f"global_store_b32 v0, v{d + index}, s[0:1] offset:{4 * wave * index}" for index in range(rows)
    )
    return run(
        "gfx1100", body, wave=wave, data=words, words=rows * wave, store=f"{store}\ns_endpgm", findings=findings
    ).reshape(rows, wave)


def place_rows(matrix: Array, wave: int) -> Array:
    """Return C or D [16, 16] as registers [rows, wave]."""
    lane = np.arange(wave)
    rows = np.arange(256 // wave)[:, None]
    return matrix[rows * (wave // 16) + lane // 16, lane % 16]


@needs_assembler
@pytest.mark.parametrize("wave", [32, 64])
def test_matrix_layout(wave: int) -> None:
    a, b, c, left, right = matrix_inputs(wave, "f32")
    start = place_rows(c, wave).astype(np.float32).view(np.uint32)
    words = np.concatenate([left, right, start, np.zeros_like(start)])
    got = run_matrix(wave, "v_wmma_f32_16x16x16_f16", "", words).view(np.float32)
    np.testing.assert_array_equal(got, place_rows(a @ b + c, wave).astype(np.float32))
    words[0, wave // 2] ^= 1
    run_matrix(wave, "v_wmma_f32_16x16x16_f16", "", words, findings=["wmma-copies"])


@needs_assembler
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("upper", [0, 1])
def test_16_bit_result_is_in_the_selected_half(wave: int, upper: int) -> None:
    a, b, c, left, right = matrix_inputs(wave, "f16")
    half = place_rows(c, wave).astype(np.float16).view(np.uint16).astype(np.uint32)
    start = half << 16 * upper | 0x1234 << 16 * (1 - upper)
    words = np.concatenate([left, right, start, np.full_like(start, 0x56785678)])
    got = run_matrix(wave, "v_wmma_f16_16x16x16_f16", f"op_sel:[0,0,{upper}]", words)
    sums = (got >> 16 * upper & 0xFFFF).astype(np.uint16).view(np.float16)
    np.testing.assert_array_equal(sums, place_rows(a @ b + c, wave).astype(np.float16))
    assert set((got >> 16 * (1 - upper) & 0xFFFF).ravel()) == {0x5678}, "the other half is kept"


# --- launch registers


def dispatch(rsrc1: int, rsrc2: int, rsrc3: int = 0, ring: int = 0) -> ShaderDispatch:
    registers = {PGM_RSRC1: rsrc1, PGM_RSRC2: rsrc2, PGM_RSRC3: rsrc3, TMPRING_SIZE: ring}

    class Dispatch:
        generation, wave32, scratch_va = Generation.GFX11, True, 0x10000
        groups = group_threads = last_threads = (1, 1, 1)
        start, user_data = (0, 0, 0), (0,) * 16

        def register(self, address: int) -> int:
            return registers[address]

    return Dispatch()  # type: ignore[return-value]


def test_launch_registers_have_the_fields_of_gfx11() -> None:
    launch = setup_of_dispatch(dispatch(0xE0AC000C, 0x1584))
    assert launch.vgprs == 104 and launch.mode == 0xC0 | DX10_CLAMP | IEEE
    assert launch.id_sgprs == (2, 3, NULL, 4) and launch.entry_sgprs == 5
    assert not setup_of_dispatch(dispatch(0, 1 << 6)).dynamic_vgprs, "bit 6 is TRAP_PRESENT"
    ring = 1 << 27 | 2 << 12 | 1  # bit 27 is above WAVESIZE
    assert setup_of_dispatch(dispatch(0, 1, ring=ring)).scratch_bytes == 2 * 256 // 32
    with pytest.raises(Refused, match="shared VGPRs"):
        setup_of_dispatch(dispatch(0, 0, rsrc3=2))
    gfx12 = setup_of_registers(0xE0AC000C, 0x1584, (1, 1, 1), wave32=True)
    assert gfx12.mode == 0xC0 and gfx12.id_sgprs is None


# --- the static sanitizer


def lint_program(chip: str, source: str, wave: int = 32) -> list[LintFinding]:
    target: Target = target_of(chip, wave)
    return [item for item in lint(assemble(chip, source, wave), target) if item.rule != "unwritten"]


LOAD = "global_load_b32 v1, v0, s[0:1]\n"
# program with WAIT, the wait that makes it correct
WAITS = {
    "load": (LOAD + "WAIT\n v_add_f32 v2, v1, v1", "s_waitcnt vmcnt(0)"),
    "second of two loads": (LOAD + LOAD.replace("v1", "v3") + "WAIT\n v_add_f32 v2, v1, v1", "s_waitcnt vmcnt(1)"),
    "LDS": ("ds_load_b32 v1, v0\n WAIT\n v_add_f32 v2, v1, v1", "s_waitcnt lgkmcnt(0)"),
    "scalar load": ("s_load_b32 s4, s[0:1], 0x0\n WAIT\n s_add_i32 s5, s4, s4", "s_waitcnt lgkmcnt(0)"),
    "LDS with a scalar load": (
        "ds_load_b32 v1, v0\n s_load_b32 s4, s[0:1], 0x0\n WAIT\n v_add_f32 v2, v1, v1", "s_waitcnt lgkmcnt(0)",
    ),
    "vmcnt alone": (LOAD + "WAIT\n v_add_f32 v2, v1, v1", "s_waitcnt_vmcnt null, 0x0"),
    "lgkmcnt alone": ("ds_load_b32 v1, v0\n WAIT\n v_add_f32 v2, v1, v1", "s_waitcnt_lgkmcnt null, 0x0"),
    "store to LDS before a barrier": ("ds_store_b32 v0, v0\n WAIT\n s_barrier", "s_waitcnt lgkmcnt(0)"),
    "store before a barrier": (
        f"global_store_b32 v0, v0, s[0:1]\n WAIT\n s_barrier\n {LOAD} s_waitcnt vmcnt(0)",
        "s_waitcnt_vscnt null, 0x0",
    ),
    "atomic that returns": (
        "global_atomic_add_u32 v1, v0, v2, s[0:1] glc\n WAIT\n v_add_f32 v2, v1, v1", "s_waitcnt vmcnt(0)",
    ),
    "invalidation": (LOAD + "WAIT\n buffer_gl0_inv\n s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(0)"),
}  # fmt: skip


@needs_assembler
@pytest.mark.parametrize("name", WAITS)
def test_missing_wait_is_named(name: str) -> None:
    source, wait = WAITS[name]
    for chip in CHIPS:
        (finding,) = lint_program(chip, source.replace("WAIT", "") + "\n s_endpgm")
        words = wait.replace("null, 0x0", "null, 0")
        if "alone" not in name:
            assert f"needs {words}" in finding.message
        assert finding.rule in ("wait", "barrier-wait", "order")
        assert lint_program(chip, source.replace("WAIT", wait) + "\n s_endpgm") == []
    with pytest.raises(subprocess.CalledProcessError):
        assemble("gfx1100", "s_wait_loadcnt 0")


@needs_assembler
def test_wait_for_loads_does_not_wait_for_stores() -> None:
    source = (
        f"global_store_b32 v0, v0, s[0:1]\n s_waitcnt vmcnt(0)\n s_barrier\n {LOAD} s_waitcnt vmcnt(0)\n s_endpgm"
    )
    assert [item.rule for item in lint_program("gfx1100", source)] == ["barrier-wait"]


@needs_assembler
def test_loads_of_one_register_are_in_order() -> None:
    source = LOAD + LOAD + "{}\n v_add_f32 v2, v1, v1\n s_endpgm"
    assert lint_program("gfx1100", source.format("s_waitcnt vmcnt(0)")) == []
    assert [item.rule for item in lint_program("gfx1201", source.format("s_wait_loadcnt 0"))] == ["wait"]


@needs_assembler
def test_sgpr_read_hazard_is_of_gfx12_only() -> None:
    source = "v_mov_b32 v1, s4\n s_mov_b32 s4, 1\n v_mov_b32 v1, s4\n s_endpgm"
    assert lint_program("gfx1100", source) == []
    assert [item.rule for item in lint_program("gfx1201", source)] == ["sgpr-read"]


OTHER = "v_mov_b32 v4, v0\n"
EXEC_WRITE = "v_mov_b32 v1, v0\n s_mov_b64 exec, s[4:5]\n v_mov_b32 v2, v0\n"
MASK = "v_cndmask_b32 v1, v2, v3, s[4:5]\n"
# rule, wave, program with WAIT, the wait that resolves the hazard
HAZARDS = {
    "transcendental": ("trans-use", 32, "v_rcp_f32 v1, v0\n WAIT\n v_add_f32 v2, v1, v0", "va_vdst(0)"),
    "transcendental, 5 between": (
        "trans-use", 64, "v_rcp_f32 v1, v0\n" + 5 * OTHER + "WAIT\n v_add_f32 v2, v1, v0",
        "va_vdst(0)",
    ),
    "write to EXEC": ("partial-forwarding", 64, EXEC_WRITE + "WAIT\n v_add_f32 v3, v1, v2", "va_vdst(0)"),
    "write to EXEC, 4 after": (
        "partial-forwarding", 64, EXEC_WRITE + 4 * OTHER + "WAIT\n v_add_f32 v3, v1, v2", "va_vdst(0)",
    ),
    "mask of the SALU": ("mask-write", 64, MASK + "s_mov_b64 s[4:5], 0\n WAIT\n " + MASK, "sa_sdst(0)"),
    "mask of the SALU, read by it": (
        "mask-write", 64, MASK + "s_mov_b64 s[4:5], 0\n WAIT\n s_mov_b32 s6, s4", "sa_sdst(0)",
    ),
    "mask of the VALU": (
        "mask-write-valu", 64, MASK + "v_cmp_eq_u32 s[4:5], v1, v2\n WAIT\n " + MASK, "va_sdst(0)",
    ),
    "mask in VCC": (
        "mask-write-valu", 64,
        "v_cndmask_b32 v1, v2, v3, vcc\n v_cmp_eq_u32 vcc, v1, v2\n WAIT\n v_cndmask_b32 v1, v2, v3, vcc",
        "va_vcc(0)",
    ),
}  # fmt: skip
# Programs with one difference from those above, which have no hazard.
RESOLVED = {
    "6 between": (64, "v_rcp_f32 v1, v0\n" + 6 * OTHER + "v_add_f32 v2, v1, v0"),
    "2 transcendental ones between": (
        32, "v_rcp_f32 v1, v0\n v_exp_f32 v3, v0\n v_exp_f32 v4, v0\n v_add_f32 v2, v1, v0",
    ),
    "memory between": (32, "v_rcp_f32 v1, v0\n global_store_b32 v0, v0, s[0:1]\n v_add_f32 v2, v1, v0"),
    "write to EXEC in wave32": (32, EXEC_WRITE.replace("exec, s[4:5]", "exec, 1") + "v_add_f32 v3, v1, v2"),
    "5 after the write to EXEC": (64, EXEC_WRITE + 5 * OTHER + "v_add_f32 v3, v1, v2"),
    "3 around the write to EXEC": (
        64, EXEC_WRITE.replace("\n", "\n" + 3 * OTHER, 1) + "v_add_f32 v3, v1, v2",
    ),
    "both after the write to EXEC": (64, EXEC_WRITE + "v_mov_b32 v1, v0\n v_add_f32 v3, v1, v2"),
    "other scalar between": (64, MASK + "v_mov_b32 v4, s6\n s_mov_b64 s[4:5], 0\n" + MASK),
    "other register written": (64, MASK + "s_mov_b64 s[6:7], 0\n v_mov_b32 v4, s6\n" + MASK),
    "mask of the VALU, read by the SALU": (64, MASK + "v_cmp_eq_u32 s[4:5], v1, v2\n s_mov_b32 s6, s4"),
}  # fmt: skip


@needs_assembler
@pytest.mark.parametrize("name", HAZARDS)
def test_missing_wait_for_an_alu_is_named(name: str) -> None:
    rule, wave, source, wait = HAZARDS[name]
    for chip in CHIPS:
        findings = lint_program(chip, source.replace("WAIT", "") + "\n s_endpgm", wave)
        has_hazard = rule != "trans-use" or chip == "gfx1100"
        assert [item.rule for item in findings] == [rule] * has_hazard
        assert all(f"s_waitcnt_depctr depctr_{wait}" in item.message for item in findings)
        resolved = source.replace("WAIT", f"s_waitcnt_depctr depctr_{wait}")
        assert lint_program(chip, resolved + "\n s_endpgm", wave) == []


@needs_assembler
@pytest.mark.parametrize("name", RESOLVED)
def test_alu_hazards_end(name: str) -> None:
    wave, source = RESOLVED[name]
    assert lint_program("gfx1100", source + "\n s_endpgm", wave) == []


GUESS = """
    s_mov_b32 exec_lo, 1
    s_load_b32 s6, s[0:1], {0}
    v_mov_b32 v1, 0
    s_waitcnt lgkmcnt(0)
    v_mov_b32 v4, s6
    v_mov_b32 v7, 1
    .Lagain:
    v_add_nc_u32 v3, v7, v4
    global_atomic_cmpswap_b32 v5, v1, v[3:4], s[0:1] {1} glc
    s_waitcnt vmcnt(0)
    v_cmp_ne_u32 vcc_lo, v5, v4
    v_mov_b32 v4, v5
    s_cbranch_vccnz .Lagain
    global_atomic_add_u32 v1, v7, s[0:1]
    s_endpgm
"""
# Wave 0 stores data, then a flag; wave 1 waits for the flag and reads the data.
FLAG = """
    v_readfirstlane_b32 s8, v0
    v_and_b32 v1, 31, v0
    v_lshlrev_b32 v1, 2, v1
    v_mov_b32 v3, 0
    v_mov_b32 v4, 1
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lreader
    global_store_b32 v1, v0, s[0:1]
    s_waitcnt_vscnt null, 0
    global_store_b32 v3, v4, s[0:1] offset:128
    s_endpgm
    .Lreader:
    global_load_b32 v5, v3, s[0:1] offset:128 {0}
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s9, v5
    s_cmp_eq_u32 s9, 0
    s_cbranch_scc1 .Lreader
    {1}
    global_load_b32 v6, v1, s[0:1]
    s_endpgm
"""


def find_races(code: bytes, **launch: Any) -> set[int]:
    """Return the pcs of the races of a program whose s[0:1] is the address of 64 zeros."""
    device = EngineDevice(target=target_of("gfx1100"))
    va = device.place(np.zeros(64, np.uint32), "data")
    findings = device.run(code, user_data=[va & 0xFFFFFFFF, va >> 32], **launch)
    assert {finding.rule for finding in findings} <= {"race"}
    return {finding.pc for finding in findings}


@pytest.mark.parametrize(
    ("load", "swap", "races"), [("0x0", "", False), ("null", "", False), ("0x0", "offset:4", True)]
)
def test_scalar_load_feeding_a_compare_and_swap_is_atomic(load: str, swap: str, races: bool) -> None:
    code = assemble("gfx1100", GUESS.format(load, swap))
    assert bool(find_races(code, groups=(3, 1, 1), threads=(128, 1, 1))) == races


def test_store_that_atomic_loads_read_is_atomic() -> None:
    """Nothing marks an atomic store on gfx11. A plain load races with it."""
    launch = {"threads": (64, 1, 1)}
    assert not find_races(assemble("gfx1100", FLAG.format("glc", "buffer_gl0_inv")), **launch)
    assert len(find_races(assemble("gfx1100", FLAG.format("glc", "s_nop 0")), **launch)) == 1
    assert len(find_races(assemble("gfx1100", FLAG.format("", "buffer_gl0_inv")), **launch)) == 2


def test_unmarked_stores_race_with_each_other() -> None:
    source = "v_mov_b32 v1, 0\n global_store_b32 v1, v0, s[0:1]\n s_endpgm"
    assert len(find_races(assemble("gfx1100", source), threads=(64, 1, 1))) == 1


# --- GL1: s[0:1] shared words, s[2:3] results, s4 the workgroup

# Workgroup 0 loads, waits until workgroup 1 of the other shader array has stored, and loads again.
TWO_LOADS = """
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v4, 0
    s_cmp_lg_u32 s4, 0
    s_cbranch_scc1 .Lwriter
    LOAD
    .Lpoll:
    global_load_b32 v3, v4, s[0:1] offset:512 glc
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s5, v3
    s_cmp_eq_u32 s5, 0
    s_cbranch_scc1 .Lpoll
    INVALIDATE
    LOAD
    global_store_b32 v1, v2, s[2:3]
    s_endpgm
    .Lwriter:
    v_mov_b32 v2, 2
    global_store_b32 v1, v2, s[0:1]
    s_waitcnt_vscnt null, 0
    global_store_b32 v4, v2, s[0:1] offset:512
    s_endpgm
"""
LOADS = {
    "vector": "global_load_b32 v2, v1, s[0:1]\n s_waitcnt vmcnt(0)",
    "scalar": "s_load_b32 s6, s[0:1], 0x0\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, s6",
}
GL1_INV, TGID_X = 1 << 9, 1 << 7


def run_on_stage(stage: ShaderStage, source: str, groups: int, **launch: Any) -> Array:
    """Run a program with workgroup ids on a 7900 XTX. Return its results."""
    shared, _ = stage.buffer(name="shared")
    out, results = stage.buffer(name="results")
    program = stage.load(assemble("gfx1100", source))
    stage.run(program, (*split_va(shared), *split_va(out)), groups=(groups, 1, 1), rsrc2=4 << 1 | TGID_X, **launch)
    return results[:32]


@needs_assembler
@pytest.mark.parametrize(
    ("load", "invalidate", "missing"),
    [
        ("vector", "buffer_gl1_inv\n buffer_gl0_inv", ""),
        ("vector", "buffer_gl0_inv", "buffer_gl1_inv"),
        ("vector", "buffer_gl1_inv", "buffer_gl0_inv"),
        ("scalar", "s_gl1_inv\n s_dcache_inv", ""),
        ("scalar", "s_dcache_inv", "buffer_gl1_inv"),
    ],
)
def test_stale_line_names_the_missing_invalidation(load: str, invalidate: str, missing: str) -> None:
    source = TWO_LOADS.replace("LOAD", LOADS[load]).replace("INVALIDATE", invalidate)
    with open_machine(chip="rx7900xtx", coherence="caches", reorder=1) as owner, open_stage(owner) as stage:
        results = run_on_stage(stage, source, 2, acquire=ACQUIRE | GL1_INV)
        assert set(results) == {0 if missing else 2}
        found = [item.sentence for item in owner.findings if item.rule == "stale-line"]
        assert bool(found) == bool(missing)
        assert all(f"{missing} is missing before the load" in sentence for sentence in found)
        assert all(("GL1 of a shader array" in sentence) == (missing == "buffer_gl1_inv") for sentence in found)


@needs_assembler
@pytest.mark.parametrize("omitted", [0, GL1_INV])
def test_next_dispatch_needs_gl1_inv(omitted: int) -> None:
    copy = f"v_lshlrev_b32 v1, 2, v0\n {LOADS['vector']}\n global_store_b32 v1, v2, s[2:3]\n s_endpgm"
    stale = 0
    for seed in range(4 if not omitted else 40):  # a line may be evicted in time: by the seed and the addresses
        with open_machine(chip="rx7900xtx", coherence="caches", reorder=seed) as owner, open_stage(owner) as stage:
            shared, _ = stage.buffer()
            out, results = stage.buffer()
            program, user = stage.load(assemble("gfx1100", copy)), (*split_va(shared), *split_va(out))
            fill = stage.load(
                assemble(
                    "gfx1100",
                    "v_lshlrev_b32 v1, 2, v0\n v_mov_b32 v2, 7\nglobal_store_b32 v1, v2, s[0:1]\n s_endpgm",
                )
            )
            for kernel in (program, fill, program):
                stage.run(kernel, user, acquire=(ACQUIRE | GL1_INV) & ~omitted)
            assert set(results[:32]) <= {0, 7}
            found = [item.sentence for item in owner.findings if item.rule == "stale-line"]
            assert bool(found) == (results[0] == 0)
            assert all("GL1_INV of an ACQUIRE_MEM or RELEASE_MEM is missing" in sentence for sentence in found)
            stale += bool(found)
        if stale:
            break
    assert bool(stale) == bool(omitted)
