"""Undefined bits as compilers leave them: what each sequence does, a healthy use of it, and one that is a fault.

v0 is the lane's number, s[0:1] hold user data; all other registers are undefined. Assembled once:

    python tests/sim/shader/carried_programs.py       # writes carried_programs.txt (needs ziglang)
"""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("carried_programs.txt")
USE = "v_cvt_f32_u32 v9, v{0}"  # wants all bits of a register
USE_SCALAR = "s_ctz_i32_b32 s9, s{0}"

# name: (sequence, healthy use, faulty use, what the finding names)
PROGRAMS: dict[str, tuple[str, str, str, str]] = {
    "mad_u64_addend": (
        "v_mov_b32 v2, 5\nv_mad_co_u64_u32 v[4:5], null, v0, v0, v[2:3]",
        USE.format(4),
        USE.format(5),
        "v5, computed",
    ),
    "mad_i64_carry": (
        "v_mov_b32 v2, 5\nv_mad_co_i64_i32 v[4:5], s4, v0, v0, v[2:3]",
        "v_lshlrev_b64 v[6:7], 32, v[4:5]\nv_cvt_f64_u32 v[10:11], v7",
        "v_cndmask_b32 v6, v0, v0, s4",
        "s4, computed",
    ),
    "shift_64": (
        "v_mov_b32 v2, 5\nv_lshlrev_b64 v[4:5], 32, v[2:3]",
        "v_cvt_f64_u32 v[6:7], v4\n" + USE.format(5),
        "v_lshrrev_b64 v[4:5], 31, v[2:3]\n" + USE.format(4),
        "v4, computed",
    ),
    "masked": (
        "v_lshl_or_b32 v2, v3, 16, v0\nv_and_or_b32 v4, v2, 0xffff, v0",
        USE.format(4),
        USE.format(2),
        "v2, computed",
    ),
    "or_with_ones": (
        "v_or_b32 v2, 0xffff0000, v3",
        "v_lshrrev_b32 v2, 16, v2\n" + USE.format(2),
        USE.format(2),
        "v2",
    ),
    "bytes_permuted": (
        "v_perm_b32 v2, v3, v0, 0x0c0c0100\nv_perm_b32 v4, v3, v0, 0x0c0c0400",
        USE.format(2),
        USE.format(4),
        "v4, computed",
    ),
    "field_inserted": (
        "v_bfi_b32 v2, 0xff, v0, v3",
        "v_and_b32 v2, 0xff, v2\n" + USE.format(2),
        USE.format(2),
        "v2",
    ),
    "side_not_taken": (
        "v_cmp_gt_u32 vcc_lo, 32, v0\nv_cndmask_b32 v2, v3, v0, vcc_lo\nv_cndmask_b32 v4, v0, v3, vcc_lo",
        USE.format(2),
        USE.format(4),
        "v4, computed",
    ),
    "dual_side_not_taken": (
        "v_cmp_gt_u32 vcc_lo, 32, v0\nv_dual_cndmask_b32 v2, v3, v0 :: v_dual_mov_b32 v5, v6",
        USE.format(2),
        USE.format(5),
        "v5, computed",
    ),
    "lane_of_an_undefined_scalar": (
        "v_mov_b32 v2, v0\nv_writelane_b32 v2, s7, 3\nv_readlane_b32 s4, v2, 2\nv_readlane_b32 s5, v2, 3",
        USE_SCALAR.format(4),
        USE_SCALAR.format(5),
        "s5, computed",
    ),
    "lane_that_is_off": (  # scalars in lanes of a vector register, read whatever EXEC is
        "v_writelane_b32 v2, s0, 9\ns_mov_b32 exec_lo, 1\nv_mov_b32 v3, v0\nv_readlane_b32 s4, v2, 9",
        USE_SCALAR.format(4),
        "v_readlane_b32 s4, v3, 9\n" + USE_SCALAR.format(4),
        "s4, computed",
    ),
    "packed_halves": (
        "v_and_b32 v2, 0xffff, v0\nv_lshl_or_b32 v2, v3, 16, v2\nv_pk_add_u16 v4, v2, v2",
        "v_cvt_f32_f16 v5, v4",
        USE.format(4),
        "v4, computed",
    ),
    "half_written": ("v_cvt_f16_f32 v2, v0", "v_cvt_f32_f16 v3, v2", USE.format(2), "v2"),
    "sum_below_the_undefined": (
        "v_lshl_or_b32 v2, v3, 16, v0\nv_add_nc_u32 v4, v2, v0\nv_mul_lo_u32 v5, v2, v2",
        "v_and_b32 v4, 0xffff, v4\nv_and_b32 v5, 0xffff, v5\n" + USE.format(4) + "\n" + USE.format(5),
        "v_bfe_u32 v4, v4, 8, 12\n" + USE.format(4),
        "v4, computed",
    ),
    "sum_of_16_bits": (  # v2: bits from 8 up are undefined, in the lower half; v5: in the upper half
        "v_lshl_or_b32 v2, v3, 8, v0\nv_mov_b32 v4, 0\nv_mov_b32 v5, 0\nv_sub_nc_u16 v4, v2, v0\n"
        "v_mad_u16 v5, v2, v0, v0 op_sel:[0,0,0,1]",
        "v_and_b32 v4, 0xff, v4\nv_and_b32 v5, 0xffffff, v5\n" + USE.format(4) + "\n" + USE.format(5),
        "v_and_b32 v4, 0xffff00ff, v4\n" + USE.format(4) + "\n" + USE.format(5),
        "v5, computed",
    ),
    "differs_bit_by_bit": ("v_xor_b32 v2, v3, v3", "v_and_b32 v2, 0, v2\n" + USE.format(2), USE.format(2), "v2"),
    "lane_mask_of_lanes_off": (  # before a loop's first turn a mask is undefined but in EXEC's lanes
        "s_mov_b32 exec_lo, 0xff\ns_and_not1_b32 s4, s5, exec_lo\ns_and_b32 s6, 0x3, exec_lo\ns_or_b32 s4, s4, s6",
        "s_and_saveexec_b32 s7, s4\nv_mov_b32 v2, v0",
        "s_mov_b32 exec_lo, s4\nv_mov_b32 v2, v0",
        "exec_lo, computed",
    ),
    "scalar_masked": (
        "s_and_b32 s4, s5, 0xff00\ns_lshl_b32 s6, s4, 16",
        "s_bfe_u32 s6, s6, 0x80000\n" + USE_SCALAR.format(6),
        "s_cbranch_scc1 .Lend\n.Lend:",
        "scc, computed",
    ),
    "low_byte_as_float": (
        "v_and_b32 v2, 0xff, v0\nv_lshl_or_b32 v2, v3, 8, v2",
        "v_cvt_f32_ubyte0 v4, v2",
        "v_cvt_f32_ubyte1 v4, v2",
        "v2, computed",
    ),
    "saved_to_scratch": (  # as it was: a half, and all of the next one
        "v_cvt_f16_f32 v2, v0\nscratch_store_b64 off, v[2:3], off offset:8\nv_mov_b32 v2, v0\nv_mov_b32 v3, v0\n"
        "scratch_load_b64 v[2:3], off, off offset:8\ns_wait_loadcnt 0x0",
        "v_cvt_f32_f16 v4, v2",
        USE.format(3),
        "v3, computed",
    ),
    "saved_by_a_function": (  # what its caller has in v3 it cannot know
        "s_branch .Lstart\n.Lsaves:\nscratch_store_b32 off, v3, off offset:4\nv_mov_b32 v3, v0\n"
        "scratch_load_b32 v3, off, off offset:4\ns_wait_loadcnt 0x0\ns_setpc_b64 s[30:31]\n"
        ".Lstart:\ns_call_b64 s[30:31], .Lsaves",
        "v_mov_b32 v3, v0\ns_call_b64 s[30:31], .Lsaves\n" + USE.format(3),
        USE.format(3),
        "v3, computed",
    ),
    "half_stored": (
        "v_cvt_f16_f32 v2, v0\nv_lshlrev_b32 v4, 2, v0",
        "scratch_store_b16 v4, v2, off\nscratch_store_b8 v4, v2, off offset:2",
        "scratch_store_d16_hi_b8 v4, v2, off",
        "v2",
    ),
    "saved_and_stored_over": (
        "scratch_store_b32 off, v3, off\nscratch_store_b8 off, v0, off offset:1",
        "scratch_load_u8 v4, off, off offset:1\ns_wait_loadcnt 0x0\n" + USE.format(4),
        "scratch_load_b32 v4, off, off\ns_wait_loadcnt 0x0\n" + USE.format(4),
        "v4, computed",
    ),
    "address_of_each_lane": (
        "v_lshlrev_b32 v2, 2, v0\nscratch_store_b32 off, v3, off",
        "scratch_store_b32 v2, v0, off",
        "scratch_store_b32 v2, v3, off",
        "v3",
    ),
    "address": ("v_mov_b32 v2, v3", "v_nop", "ds_load_b32 v4, v2", "v2, computed"),
    "select_by_the_undefined": ("v_mov_b32 v2, v0", "v_lshlrev_b32 v4, 1, v2", "v_lshlrev_b32 v4, v3, v2", "v3"),
    "compared": ("v_mov_b32 v2, v3", "v_mov_b32 v4, v2", "v_cmp_eq_u32 vcc_lo, v0, v2", "v2, computed"),
}


def read() -> dict[str, bytes]:
    """Machine code of "NAME healthy" and "NAME faulty"."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    return {name: bytes.fromhex(words) for name, words in (line.rsplit(" ", 1) for line in lines)}


def main() -> None:
    from vector_programs import COMMAND, assemble_text

    lines = [f"# gfx1201 machine code of carried_programs.py, made with: {COMMAND}"]
    for name, (sequence, healthy, faulty, _) in PROGRAMS.items():
        for kind, use in (("healthy", healthy), ("faulty", faulty)):
            code = assemble_text("\n".join((sequence, use, "s_endpgm", "")))
            lines.append(f"{name} {kind} {code.hex()}")
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
