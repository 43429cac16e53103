"""Short vector programs whose results are known, assembled once; see vector_programs.txt.

Each reads v1 to v3 of its thread from memory and stores v10 to v17 of it.

    python tests/sim/shader/vector_programs.py       # assembles and writes vector_programs.txt (needs ziglang)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from zinc_rt.isa.elf import read_elf
from zinc_rt.sim.shader.checks.finding_text import WaveFinding
from zinc_rt.sim.shader.run.engine_device import EngineDevice

Array = np.ndarray
FILE = Path(__file__).with_suffix(".txt")
COMMAND = "python tests/sim/shader/vector_programs.py"
INPUTS, OUTPUTS = 3, 8

HEAD = """
s_mov_b32 exec_lo, -1
v_and_b32 v0, 0x3ff, v0
v_lshl_add_u32 v0, ttmp9, 5, v0
v_lshlrev_b32 v0, 2, v0
global_load_b32 v1, v0, s[0:1]
global_load_b32 v2, v0, s[2:3]
global_load_b32 v3, v0, s[4:5]
s_wait_loadcnt 0
"""
HEAD += "".join(f"v_mov_b32 v{10 + i}, 0x5a5a5a5a\n" for i in range(OUTPUTS))
TAIL = "s_mov_b32 exec_lo, -1\n"
TAIL += "".join(f"global_store_b32 v0, v{10 + i}, s[{6 + 2 * i}:{7 + 2 * i}]\n" for i in range(4))
TAIL += "".join(f"global_store_b32 v0, v{14 + i}, s[6:7] offset:{4096 * (i + 1)}\n" for i in range(4))
TAIL += "s_endpgm\n"
# As compilers divide floats.
DIVIDE_32 = """
v_div_scale_f32 v5, null, v2, v2, v1
v_div_scale_f32 v6, vcc_lo, v1, v2, v1
v_rcp_f32 v7, v5
v_fma_f32 v8, -v5, v7, 1.0
v_fmac_f32 v7, v8, v7
v_mul_f32 v8, v6, v7
v_fma_f32 v9, -v5, v8, v6
v_fmac_f32 v8, v9, v7
v_fma_f32 v5, -v5, v8, v6
v_div_fmas_f32 v5, v5, v7, v8
v_div_fixup_f32 v10, v5, v2, v1
"""
# 16 bytes of A and of B a lane; all of C is v3. One workgroup a product.
WMMA_ROWS = """
v_lshlrev_b32 v4, 2, v0
global_load_b128 v[20:23], v4, s[0:1]
global_load_b128 v[24:27], v4, s[2:3]
v_mov_b32 v10, v3
v_mov_b32 v11, v3
v_mov_b32 v12, v3
v_mov_b32 v13, v3
v_mov_b32 v14, v3
v_mov_b32 v15, v3
v_mov_b32 v16, v3
v_mov_b32 v17, v3
s_wait_loadcnt 0
v_wmma_f32_16x16x16_KIND v[10:17], v[20:23], v[24:27], v[10:17]
"""
FUNCTIONS = ("exp", "log", "rcp", "rsq", "sqrt")
MODIFIERS = {
    "none": ("v1", ""),
    "div2": ("v1", "div:2"),
    "mul4": ("v1", "mul:4"),
    "clampmul2": ("v1", "clamp mul:2"),
    "negabs": ("-|v1|", ""),
    "neg": ("-v1", ""),
}


def half_functions(operands: str, tail: str) -> str:
    return "".join(f"v_{name}_f16_e64 v{10 + index}, {operands} {tail}\n" for index, name in enumerate(FUNCTIONS))


PROGRAMS = {
    "divide_32": DIVIDE_32,
    "divide_64": """
v_mov_b32 v20, v1
v_mov_b32 v21, v2
v_mov_b32 v22, 0
v_mov_b32 v23, v3
v_div_scale_f64 v[24:25], null, v[22:23], v[22:23], v[20:21]
v_rcp_f64 v[26:27], v[24:25]
v_fma_f64 v[28:29], -v[24:25], v[26:27], 1.0
v_fma_f64 v[26:27], v[26:27], v[28:29], v[26:27]
v_fma_f64 v[28:29], -v[24:25], v[26:27], 1.0
v_fma_f64 v[26:27], v[26:27], v[28:29], v[26:27]
v_div_scale_f64 v[28:29], vcc_lo, v[20:21], v[22:23], v[20:21]
v_mul_f64 v[30:31], v[28:29], v[26:27]
v_fma_f64 v[24:25], -v[24:25], v[30:31], v[28:29]
v_div_fmas_f64 v[24:25], v[24:25], v[26:27], v[30:31]
v_div_fixup_f64 v[10:11], v[24:25], v[22:23], v[20:21]
""",
    "inexact_32": """
v_exp_f32 v10, v1
v_log_f32 v11, v1
v_rcp_f32 v12, v1
v_rsq_f32 v13, v1
v_sqrt_f32 v14, v1
v_sin_f32 v15, v1
v_cos_f32 v16, v1
v_rcp_iflag_f32 v17, v1
""",
    "inexact_16": """
v_exp_f16 v10, v1
v_log_f16 v11, v1
v_rcp_f16 v12, v1
v_rsq_f16 v13, v1
v_sqrt_f16 v14, v1
v_sin_f16 v15, v1
v_cos_f16 v16, v1
""",
    "inexact_scalar": """
v_readlane_b32 s30, v1, 5
v_readlane_b32 s31, v2, 5
s_mov_b32 exec_lo, 0
v_s_exp_f32 s32, s30
v_s_log_f32 s33, s30
v_s_rcp_f32 s34, -s30
v_s_rsq_f32 s35, |s30|
v_s_sqrt_f32 s36, s30 mul:2
v_s_sqrt_f16 s37, s31
s_mov_b32 exec_lo, -1
v_mov_b32 v10, s32
v_mov_b32 v11, s33
v_mov_b32 v12, s34
v_mov_b32 v13, s35
v_mov_b32 v14, s36
v_mov_b32 v15, s37
""",
    "swap_dual": """
v_mov_b32 v10, v1
v_mov_b32 v11, v2
v_dual_mov_b32 v10, v11 :: v_dual_mov_b32 v11, v10
v_dual_mul_f32 v13, 4.0, v1 :: v_dual_lshlrev_b32 v12, 3, v2
""",
    "moved_by_m0": """
s_mov_b32 m0, 9
v_movreld_b32 v1, v1
s_mov_b32 m0, 0x000b0001
v_mov_b32 v4, v3
v_movrelsd_2_b32 v0, v2
s_mov_b32 m0, 1
v_movrels_b32 v12, v1
""",
    "no_contraction": """
v_mul_f32 v10, v1, v2
v_add_f32 v10, v10, v3
v_fma_f32 v11, v1, v2, v3
v_dual_mul_f32 v12, v1, v2 :: v_dual_mov_b32 v13, v3
v_dual_add_f32 v12, v12, v13 :: v_dual_mov_b32 v15, v3
""",
    "sad_windows": """
v_mov_b32 v20, v1
v_mov_b32 v21, v2
v_mov_b32 v22, 7
v_mov_b32 v23, -1
v_qsad_pk_u16_u8 v[16:17], v[1:2], v3, v[20:21]
v_mqsad_pk_u16_u8 v[10:11], v[1:2], v3, v[20:21]
v_mqsad_u32_u8 v[12:15], v[1:2], v3, v[20:23]
""",
    "read_first_of_none": "s_mov_b32 exec_lo, 0\nv_readfirstlane_b32 s30, v1\n",
    "read_first_of_some": "s_mov_b32 exec_lo, 0x500\nv_readfirstlane_b32 s30, v1\nv_mov_b32 v10, s30\n",
    "read_lane_off": "s_mov_b32 exec_lo, 0xff\nv_readlane_b32 s30, v1, 40\n",
    "read_lane_on": "s_mov_b32 exec_lo, 0xff\nv_readlane_b32 s30, v1, 35\nv_mov_b32 v10, s30\n",
    "dpp_off": "s_mov_b32 exec_lo, 0xffff00ff\nv_mov_b32_dpp v10, v1 row_ror:4 row_mask:0xf bank_mask:0xf\n",
    "dpp_off_zero": """
s_mov_b32 exec_lo, 0xffff00ff
v_mov_b32_dpp v10, v1 row_ror:4 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_mov_b32_dpp v11, v1 row_ror:4 row_mask:0xf bank_mask:0xf fi:1
""",
    "dpp_shares_one_lane": """
s_mov_b32 exec_lo, 1
v_mov_b32 v4, v1
s_mov_b32 exec_lo, -1
v_mov_b32_dpp v10, v4 row_share:0 row_mask:0x1 bank_mask:0xf
""",
    "dpp_shares_an_unwritten_lane": """
s_mov_b32 exec_lo, 1
v_mov_b32 v4, v1
s_mov_b32 exec_lo, -1
v_mov_b32_dpp v10, v4 row_share:0 row_mask:0xf bank_mask:0xf
""",
    "permlane_off": """
s_mov_b32 exec_lo, 0xffff00ff
s_mov_b32 s30, 0x76543210
s_mov_b32 s31, 0xfedcba98
v_permlanex16_b32 v10, v1, s30, s31
""",
    "matrix_off": """
s_mov_b32 exec_lo, 0x7fffffff
v_wmma_i32_16x16x16_iu4 v[10:17], v1, v2, 0
""",
    **{f"halves_{name}": half_functions(*how) for name, how in MODIFIERS.items()},
    "dot2_rows": "v_dot2_f32_f16 v10, v1, v2, v3\nv_dot2_f32_bf16 v11, v1, v2, v3\n",
    **{f"wmma_rows_{kind}": WMMA_ROWS.replace("KIND", kind) for kind in ("f16", "bf16")},
    "captured_choices": """
v_min_num_f32 v10, v1, v2
v_max_num_f32 v11, v1, v2
v_minimum_f32 v12, v1, v2
v_maximum_f32 v13, v1, v2
v_med3_num_f32 v14, v1, v2, v3
v_fract_f32 v15, v1
v_mul_f32 v16, v1, v2 mul:2
v_mul_f32 v17, v1, v2 div:2
""",
    "captured_conversions": """
v_cvt_floor_i32_f32 v10, v1
v_cvt_nearest_i32_f32 v11, v1
v_cvt_i32_f32 v12, v1
v_cvt_f32_fp8 v13, v2
v_cvt_f32_bf8 v14, v2
v_cvt_pk_fp8_f32 v15, v1, v1
v_cvt_pk_bf8_f32 v16, v1, v1
v_max_num_f32 v17, v1, v1 clamp
""",
    "matrix_on": "v_wmma_i32_16x16x16_iu4 v[10:17], v1, v2, 1 neg_lo:[1,0,0]\n",
}


def program_source(name: str) -> str:
    return '.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"\n' + HEAD + PROGRAMS[name] + TAIL


def read_programs() -> dict[str, bytes]:
    result = {}
    for line in FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            name, words = line.split()
            result[name] = bytes.fromhex(words)
    return result


def run_program(
    name: str, inputs: tuple[Array, ...], *, level: str = "full", perturb: int = 0, mode: int = 0xF0
) -> tuple[list[Array], list[WaveFinding]]:
    """(v10 to v17 as uint32 of each thread, findings). `inputs`: v1, v2, v3, 32-bit, a multiple of 32."""
    count = len(inputs[0])
    device = EngineDevice(level=level, perturb=perturb)
    placed = [np.ascontiguousarray(item).view(np.uint32).copy() for item in inputs]
    placed += [np.zeros(count, np.uint32)] * (INPUTS - len(placed))
    words = [device.place(item, f"in{index}") for index, item in enumerate(placed)]
    assert count * 4 <= 4096
    wide = np.zeros((OUTPUTS - 3) * 1024, np.uint32)
    rest = [np.zeros(count, np.uint32) for _ in range(3)]
    words += [device.place(item, f"out{index}") for index, item in enumerate((wide, *rest))]
    findings = device.run(
        read_programs()[name],
        groups=(count // 32, 1, 1),
        user_data=[part for va in words for part in (va & 0xFFFFFFFF, va >> 32)],
        mode=mode,
        name=name,
    )
    first = wide.reshape(-1, 1024)[:, :count]
    return [first[0], *rest, *first[1:]], findings


def assemble_text(text: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        argument, result = Path(folder) / "k.s", Path(folder) / "k.o"
        argument.write_text(text)
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
        subprocess.run([*command, "-c", str(argument), "-o", str(result)], check=True)
        sections = read_elf(result.read_bytes(), "kernel").sections
    return next(section.code for section in sections if section.name == ".text")


def main() -> None:
    lines = [f"# gfx1201 machine code of vector_programs.py, made with: {COMMAND}"]
    lines += [f"{name} {assemble_text(program_source(name)).hex()}" for name in PROGRAMS]
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
