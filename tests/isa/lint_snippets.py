"""Small kernels with one fault each, and the same without it; `.long` where no assembler would agree."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from zinc_rt.isa.elf import read_elf
from zinc_rt.isa.lint.operands import Limits

LOAD = "s_load_b64 s[2:3], s[0:1], 0\n s_wait_kmcnt 0\n"
NONE = Limits()
SMALL = Limits(vgprs=8, sgprs=16, lds_bytes=0, scratch_bytes=0, entry_sgprs=2)
WITH_LDS = replace(SMALL, lds_bytes=512)


@dataclass(frozen=True, slots=True)
class Snippet:
    """`bad` has the fault of `rule` at the instruction that begins with `at`; `good` has none."""

    rule: str
    at: str
    bad: str
    good: str
    limits: Limits = SMALL


def wait_snippet(label: str, bad: str, required: str, limits: Limits = SMALL) -> Snippet:
    """A snippet that is correct if WAIT is replaced by the required instruction."""
    return Snippet("wait", label, bad.replace("WAIT", ""), bad.replace("WAIT", required), limits)


def hazard_snippet(rule: str, label: str, bad: str, required: str) -> Snippet:
    return Snippet(rule, label, bad.replace("WAIT", ""), bad.replace("WAIT", required))


ZERO = "\n".join(f"v_mov_b32 v{r}, 0" for r in range(24)) + "\n"
LITERAL = ", 0x1111\n"
S = -256  # in a first source: s0


def encode_vopd(
    first: int, second: int, x: tuple[int, int, int] = (0, 4, 1), y: tuple[int, int, int] = (3, 8, 2)
) -> str:
    """The words of a VOPD: opcodes, then destination, first and second source of each half, vector registers."""
    low = 0x32 << 26 | first << 22 | second << 17 | x[2] << 9 | (256 + x[1])
    high = x[0] << 24 | y[0] >> 1 << 17 | y[2] << 9 | (256 + y[1])
    return f".long {low:#x}, {high:#x}"


SNIPPETS = {
    # --- wait counters
    "load used": wait_snippet(
        "v_add_f32", LOAD + "global_load_b32 v1, v0, s[2:3]\n WAIT\n v_add_f32 v1, v1, v1", "s_wait_loadcnt 0"
    ),
    "load used as an address": wait_snippet(
        "global_store",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n WAIT\n global_store_b32 v1, v0, s[2:3]",
        "s_wait_loadcnt 0",
    ),
    "load overwritten": wait_snippet(
        "v_mov_b32", LOAD + "global_load_b32 v1, v0, s[2:3]\n WAIT\n v_mov_b32 v1, 0", "s_wait_loadcnt 0"
    ),
    "load into a pending load": wait_snippet(
        "global_load_b64",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n WAIT\n global_load_b64 v[1:2], v0, s[2:3]",
        "s_wait_loadcnt 0",
    ),
    "LDS load into a pending load of memory": wait_snippet(
        "ds_load_b32",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n WAIT\n ds_load_b32 v1, v0\n s_wait_loadcnt_dscnt 0",
        "s_wait_loadcnt 0",
        WITH_LDS,
    ),
    "LDS load by what another may write": wait_snippet(
        "ds_load_b32 v2",
        "ds_load_b32 v1, v0\n WAIT\n ds_load_b32 v2, v1\n s_wait_dscnt 0",
        "s_wait_dscnt 0",
        WITH_LDS,
    ),
    "the later of two LDS loads read": Snippet(
        "wait",
        "v_mov_b32",
        "ds_load_b32 v1, v0\n ds_load_b32 v1, v0 offset:4\n s_wait_dscnt 1\n v_mov_b32 v2, v1",
        "ds_load_b32 v1, v0\n ds_load_b32 v1, v0 offset:4\n s_wait_dscnt 0\n v_mov_b32 v2, v1",
        WITH_LDS,
    ),
    "wait for too few": Snippet(
        "wait",
        "v_mov_b32",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n"
        " global_load_b32 v2, v0, s[2:3] offset:4\n s_wait_loadcnt 2\n v_mov_b32 v3, v1",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n"
        " global_load_b32 v2, v0, s[2:3] offset:4\n s_wait_loadcnt 1\n v_mov_b32 v3, v1",
    ),
    "wait for the other load": Snippet(
        "wait",
        "v_mov_b32",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n"
        " global_load_b32 v2, v0, s[2:3] offset:4\n s_wait_loadcnt 1\n v_mov_b32 v3, v2",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n"
        " global_load_b32 v2, v0, s[2:3] offset:4\n s_wait_loadcnt 0\n v_mov_b32 v3, v2",
    ),
    "wait on the wrong counter": Snippet(
        "wait",
        "v_mov_b32",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n s_wait_dscnt 0\n v_mov_b32 v3, v1",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n s_wait_loadcnt_dscnt 0\n v_mov_b32 v3, v1",
    ),
    "wait on one path only": Snippet(
        "wait",
        "v_mov_b32",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n s_cmp_eq_u32 s2, 0\n"
        " s_cbranch_scc1 1f\n s_wait_loadcnt 0\n 1: v_mov_b32 v3, v1",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n s_cmp_eq_u32 s2, 0\n"
        " s_cbranch_scc1 1f\n 1: s_wait_loadcnt 0\n v_mov_b32 v3, v1",
    ),
    "wait missing round a loop": Snippet(
        "wait",
        "v_add_f32",
        LOAD
        + "v_mov_b32 v1, 0\n 1: v_add_f32 v2, v1, v1\n global_load_b32 v1, v0, s[2:3]\n s_sub_co_i32 s2, s2, 1\n"
        " s_cmp_eq_u32 s2, 0\n s_cbranch_scc0 1b",
        LOAD + "v_mov_b32 v1, 0\n 1: s_wait_loadcnt 0\n v_add_f32 v2, v1, v1\n global_load_b32 v1, v0, s[2:3]\n"
        " s_sub_co_i32 s2, s2, 1\n s_cmp_eq_u32 s2, 0\n s_cbranch_scc0 1b",
    ),
    "scalar load used": wait_snippet(
        "s_add_co_i32", "s_load_b32 s4, s[0:1], 0\n WAIT\n s_add_co_i32 s4, s4, 1", "s_wait_kmcnt 0"
    ),
    "scalar load used by a vector": wait_snippet(
        "v_mov_b32", "s_load_b32 s4, s[0:1], 0\n WAIT\n v_mov_b32 v1, s4", "s_wait_kmcnt 0"
    ),
    "scalar load overwritten": wait_snippet(
        "s_mov_b32", "s_load_b32 s4, s[0:1], 0\n WAIT\n s_mov_b32 s4, 0", "s_wait_kmcnt 0"
    ),
    "scalar loads in any order": Snippet(
        "wait",
        "s_mov_b32",
        "s_load_b32 s4, s[0:1], 0\n s_load_b32 s5, s[0:1], 64\n s_wait_kmcnt 1\n s_mov_b32 s6, s4",
        "s_load_b32 s4, s[0:1], 0\n s_load_b32 s5, s[0:1], 64\n s_wait_kmcnt 0\n s_mov_b32 s6, s4",
    ),
    "LDS load used": Snippet(
        "wait",
        "v_mov_b32",
        "ds_load_b64 v[2:3], v0\n v_mov_b32 v4, v3",
        "ds_load_b64 v[2:3], v0\n s_wait_dscnt 0\n v_mov_b32 v4, v3",
        NONE,
    ),
    "LDS load behind a store": Snippet(
        "wait",
        "v_mov_b32",
        "ds_load_b32 v2, v0\n ds_store_b32 v0, v0\n s_wait_dscnt 2\n v_mov_b32 v4, v2",
        "ds_load_b32 v2, v0\n ds_store_b32 v0, v0\n s_wait_dscnt 1\n v_mov_b32 v4, v2",
        NONE,
    ),
    "bpermute used": wait_snippet(
        "v_mov_b32", "ds_bpermute_b32 v2, v0, v0\n WAIT\n v_mov_b32 v4, v2", "s_wait_dscnt 0"
    ),
    "swizzle used": wait_snippet(
        "v_mov_b32", "ds_swizzle_b32 v2, v0 offset:0x401f\n WAIT\n v_mov_b32 v4, v2", "s_wait_dscnt 0"
    ),
    "atomic result used": wait_snippet(
        "v_mov_b32",
        LOAD + "global_atomic_add_u32 v2, v0, v0, s[2:3] th:TH_ATOMIC_RETURN\n WAIT\n v_mov_b32 v4, v2",
        "s_wait_loadcnt 0",
    ),
    "flat load waits for one counter": Snippet(
        "wait",
        "v_mov_b32",
        "v_mov_b32 v1, 0\n flat_load_b32 v2, v[0:1]\n s_wait_loadcnt 0\n v_mov_b32 v4, v2",
        "v_mov_b32 v1, 0\n flat_load_b32 v2, v[0:1]\n s_wait_loadcnt_dscnt 0\n v_mov_b32 v4, v2",
    ),
    "scratch load used": Snippet(
        "wait",
        "v_mov_b32",
        "scratch_load_b32 v2, off, off\n v_mov_b32 v4, v2",
        "scratch_load_b32 v2, off, off\n s_wait_loadcnt 0\n v_mov_b32 v4, v2",
        NONE,
    ),
    "buffer load used": Snippet(
        "wait",
        "v_mov_b32",
        "buffer_load_b32 v2, v0, s[0:3], null offen\n v_mov_b32 v4, v2",
        "buffer_load_b32 v2, v0, s[0:3], null offen\n s_wait_idle\n v_mov_b32 v4, v2",
        NONE,
    ),
    "message result used": wait_snippet(
        "s_mov_b64",
        "s_sendmsg_rtn_b64 s[4:5], sendmsg(MSG_RTN_GET_REALTIME)\n WAIT\n s_mov_b64 s[6:7], s[4:5]",
        "s_wait_kmcnt 0",
    ),
    "first at the barrier": wait_snippet(
        "s_cbranch_scc1",
        "s_barrier_signal_isfirst -1\n WAIT\n s_cbranch_scc1 1f\n s_nop 0\n 1: s_barrier_wait -1",
        "s_wait_kmcnt 0",
    ),
    # --- memory order
    "LDS store at a barrier": Snippet(
        "barrier-wait",
        "s_barrier_signal",
        "ds_store_b32 v0, v0\n s_barrier_signal -1\n s_barrier_wait -1",
        "ds_store_b32 v0, v0\n s_wait_dscnt 0\n s_barrier_signal -1\n s_barrier_wait -1",
        NONE,
    ),
    "global store at a barrier": hazard_snippet(
        "barrier-wait",
        "s_barrier_signal",
        LOAD + "global_store_b32 v0, v0, s[2:3]\n WAIT\n s_barrier_signal -1\n s_barrier_wait -1\n"
        " global_load_b32 v1, v0, s[2:3] offset:4",
        "s_wait_storecnt 0",
    ),
    "load pending at an invalidation": hazard_snippet(
        "order",
        "global_inv",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n WAIT\n global_inv scope:SCOPE_DEV",
        "s_wait_loadcnt 0",
    ),
    "store behind a write-back": hazard_snippet(
        "order",
        "global_store",
        LOAD + "global_store_b32 v0, v0, s[2:3] offset:4\n global_wb scope:SCOPE_SYS\n WAIT\n"
        " global_store_b32 v0, v0, s[2:3]",
        "s_wait_storecnt 0",
    ),
    "second write-back not waited for": hazard_snippet(
        "order",
        "global_store",
        LOAD + "global_store_b32 v0, v0, s[2:3] offset:4\n WAIT\n global_wb scope:SCOPE_SE\n"
        " global_store_b32 v0, v0, s[2:3]",
        "s_wait_storecnt 0",  # behind it the write-back has nothing to publish, as in a fence around LDS alone
    ),
    "a load behind a call": Snippet(
        "wait",
        "v_mov_b32_e32 v2",
        LOAD + "global_load_b32 v1, v0, s[2:3]\n s_getpc_b64 s[4:5]\n s_nop 0\n v_mov_b32 v2, v1",
        LOAD
        + "global_load_b32 v1, v0, s[2:3]\n s_getpc_b64 s[4:5]\n s_swappc_b64 s[6:7], s[4:5]\n v_mov_b32 v2, v1",
        NONE,
    ),
    # --- SGPR read hazard
    "SALU write, VALU read": hazard_snippet(
        "sgpr-read",
        "v_mov_b32_e32 v2",
        "v_mov_b32 v1, s0\n s_mov_b32 s0, 5\n WAIT\n v_mov_b32 v2, s0",
        "s_wait_alu depctr_sa_sdst(0)",
    ),
    "SALU write of the pair's other half": hazard_snippet(
        "sgpr-read",
        "v_mov_b32_e32 v2",
        "v_mov_b32 v1, s0\n s_mov_b32 s1, 5\n WAIT\n v_mov_b32 v2, s1",
        "s_wait_alu depctr_sa_sdst(0)",
    ),
    "SALU write, SALU read": hazard_snippet(
        "sgpr-read",
        "s_mov_b32 s4",
        "v_mov_b32 v1, s0\n s_mov_b32 s0, 5\n WAIT\n s_mov_b32 s4, s0",
        "s_wait_alu depctr_sa_sdst(0)",
    ),
    "VALU write, VALU read": hazard_snippet(
        "sgpr-read",
        "v_cndmask",
        "v_mov_b32 v1, s0\n v_cmp_eq_u32 s0, v0, v1\n WAIT\n v_cndmask_b32 v2, v0, v1, s0",
        "s_wait_alu depctr_va_sdst(0)",
    ),
    "VALU write, SALU read of any SGPR, VALU read": hazard_snippet(
        "sgpr-read",
        "v_cndmask",
        "v_mov_b32 v1, s0\n v_cmp_eq_u32 s0, v0, v1\n WAIT\n v_cndmask_b32 v2, v0, v1, s0",
        "s_xor_b32 s4, s1, -1",
    ),
    "VCC written and read": hazard_snippet(
        "sgpr-read",
        "v_cndmask_b32_e32 v3",
        "v_cmp_eq_u32 vcc_lo, 1, v0\n v_cndmask_b32 v2, v0, v0, vcc_lo\n v_cmp_eq_u32 vcc_lo, 2, v0\n WAIT\n"
        " v_cndmask_b32 v3, v0, v0, vcc_lo",
        "s_wait_alu depctr_va_vcc(0)",
    ),
    "VCC written by the SALU": Snippet(
        "sgpr-read",
        "v_cndmask_b32_e32 v3",
        "v_cmp_eq_u32 vcc_lo, 1, v0\n v_cndmask_b32 v2, v0, v0, vcc_lo\n"
        " s_mov_b32 vcc_lo, 2\n s_wait_alu depctr_va_vcc(0)\n"
        " v_cndmask_b32 v3, v0, v0, vcc_lo",
        "v_cmp_eq_u32 vcc_lo, 1, v0\n v_cndmask_b32 v2, v0, v0, vcc_lo\n"
        " s_mov_b32 vcc_lo, 2\n s_wait_alu depctr_sa_sdst(0)\n"
        " v_cndmask_b32 v3, v0, v0, vcc_lo",
    ),
    "the hazard comes round a loop": Snippet(
        "sgpr-read",
        "v_mov_b32_e32 v1",
        "1: v_mov_b32 v1, s0\n s_add_co_i32 s0, s0, 1\n s_cbranch_scc0 1b",
        "1: s_wait_alu depctr_sa_sdst(0)\n v_mov_b32 v1, s0\n s_add_co_i32 s0, s0, 1\n s_cbranch_scc0 1b",
    ),
    "a scalar load makes writes arrive": Snippet(
        "sgpr-read",
        "v_mov_b32_e32 v2",
        "v_mov_b32 v1, s0\n s_mov_b32 s0, 5\n global_load_b32 v3, v0, s[0:1]\n v_mov_b32 v2, s0",
        "v_mov_b32 v1, s0\n s_mov_b32 s0, 5\n s_load_b32 s4, s[0:1], 0\n v_mov_b32 v2, s0",
    ),
    # --- vector hazards
    "matrix result as A": Snippet(
        "wmma",
        "v_wmma_f32_16x16x16_f16 v[16:23]",
        ZERO + "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]\n"
        " v_wmma_f32_16x16x16_f16 v[16:23], v[4:7], v[12:15], v[16:23]",
        ZERO + "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]\n v_nop\n"
        " v_wmma_f32_16x16x16_f16 v[16:23], v[4:7], v[12:15], v[16:23]",
        NONE,
    ),
    "matrix result as B, not as C": Snippet(
        "wmma",
        "v_wmma_i32_16x16x16_iu8 v[16:23]",
        ZERO + "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[12:13], v[0:7]\n"
        " v_wmma_i32_16x16x16_iu8 v[16:23], v[10:11], v[6:7], v[16:23]",
        ZERO + "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[12:13], v[0:7]\n"
        " v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[12:13], v[0:7]",
        NONE,
    ),
    "permlane behind v_cmpx": Snippet(
        "permlane",
        "v_permlane16",
        "v_cmpx_gt_u32 16, v0\n v_nop\n v_permlane16_b32 v1, v0, s0, s1",
        "v_cmpx_gt_u32 16, v0\n v_mov_b32 v2, v0\n v_permlane16_b32 v1, v0, s0, s1",
    ),
    # --- VOPD: no assembler makes the bad ones
    "VOPD first sources in one bank": Snippet(
        "vopd", "v_dual_add_f32", ZERO + encode_vopd(4, 4), ZERO + encode_vopd(4, 4, y=(3, 9, 6)), NONE
    ),
    "VOPD second sources in one bank": Snippet(
        "vopd",
        "v_dual_mul_f32",
        ZERO + encode_vopd(3, 4, y=(3, 9, 5)),
        ZERO + encode_vopd(3, 4, y=(3, 9, 6)),
        NONE,
    ),
    "VOPD third sources of one parity": Snippet(
        "vopd",
        "v_dual_fmamk_f32",
        ZERO + encode_vopd(2, 0, y=(3, 9, 6)) + LITERAL,
        ZERO + encode_vopd(2, 0, x=(0, 4, 2), y=(3, 9, 7)) + LITERAL,
        NONE,
    ),
    "VOPD with three scalars": Snippet(
        "vopd",
        "v_dual_add_f32",
        "v_cmp_eq_u32 vcc_lo, 0, v0\n" + ZERO + encode_vopd(4, 9, x=(0, S, 1), y=(3, S + 1, 2)),
        "v_cmp_eq_u32 vcc_lo, 0, v0\n" + ZERO + encode_vopd(4, 9, x=(0, S, 1), y=(3, S, 2)),
        NONE,
    ),
    "three scalars": Snippet(
        "scalars",
        "v_fma_f32",
        ".long 0xd6130001, 0x00140801 - 0x1 + 2\n",
        "v_fma_f32 v1, s0, s1, v0",
        Limits(entry_sgprs=8),
    ),
    "two scalars of a shift": Snippet(
        "scalars",
        "v_lshrrev_b64",
        ".long 0xd73d0002, 0x00000800\n",
        ZERO + "v_lshrrev_b64 v[2:3], s0, v[0:1]",
        NONE,
    ),
    # --- registers and the header
    "vector register beyond the header": Snippet("header", "v_mov_b32", "v_mov_b32 v8, 0", "v_mov_b32 v7, 0"),
    "scalar register beyond the header": Snippet("header", "s_mov_b32", "s_mov_b32 s16, 0", "s_mov_b32 s15, 0"),
    "LDS not declared": Snippet("header", "ds_load_b32", "ds_load_b32 v1, v0", "ds_bpermute_b32 v1, v0, v0"),
    "LDS offset beyond the header": Snippet(
        "header",
        "ds_load_b64",
        "ds_load_b64 v[2:3], v0 offset:60",
        "ds_load_b64 v[2:3], v0 offset:56",
        Limits(lds_bytes=64),
    ),
    "LDS strided offset beyond the header": Snippet(
        "header",
        "ds_store_2addr_stride64_b32",
        "ds_store_2addr_stride64_b32 v0, v0, v0 offset0:1 offset1:4",
        "ds_store_2addr_stride64_b32 v0, v0, v0 offset0:1 offset1:3",
        Limits(lds_bytes=1024),
    ),
    "argument beyond the block": Snippet(
        "kernarg",
        "s_load_b64",
        "s_load_b64 s[2:3], s[0:1], 20",
        "s_load_b64 s[2:3], s[0:1], 16",
        Limits(kernarg_bytes=24),
    ),
    "scratch not declared": Snippet("header", "scratch_load", "scratch_load_b32 v1, off, off", "s_nop 0"),
    "four registers up to v256": Snippet(
        "register", "global_load_b128", LOAD + ".long 0xee05c002, 253, 0", LOAD + ".long 0xee05c002, 252, 0", NONE
    ),
    "pair from an odd register": Snippet(
        "alignment", "s_mov_b64", ".long 0xbe840101 | 1", "s_mov_b64 s[4:5], s[0:1]"
    ),
    "lane beyond the wave": Snippet(
        "lane", "v_readlane", "v_readlane_b32 s4, v0, 32", "v_readlane_b32 s4, v0, 31"
    ),
    "an export": Snippet("graphics", "export", "export mrt0 v0, v0, v0, v0 done", "s_nop 0"),
    # --- control
    "branch out of the code": Snippet("branch", "s_branch", "s_branch 32000", "s_branch 0"),
    "branch in front of the code": Snippet(
        "branch", "s_cbranch_scc1", "s_cmp_eq_u32 s0, 0\n s_cbranch_scc1 -9000", "s_nop 0"
    ),
    "branch into an instruction": Snippet(
        "branch",
        "s_nop",
        "s_cmp_eq_u32 s0, 0\n s_nop 0\n .long 0xbfa20001\n 1: s_mov_b32 s4, lit(0xbf800000)\n",
        "s_cmp_eq_u32 s0, 0\n s_nop 0\n s_cbranch_scc1 1f\n 1: s_mov_b32 s4, lit(0xbf800000)\n",
    ),
    "no instruction": Snippet("illegal", "", ".long 0xffffffff", "s_nop 0"),
    "erased memory": Snippet("illegal", "", ".long 0", "s_nop 0"),
    "runs into the padding": Snippet("end", "s_nop", "s_nop 0\n s_code_end", "s_nop 0\n s_endpgm\n s_code_end"),
    "endless loop": Snippet(
        "endless", "s_branch", "1: s_nop 0\n s_branch 1b", "1: s_cmp_eq_u32 s0, 0\n s_cbranch_scc1 1b"
    ),
    "endless loop of two blocks": Snippet(
        "endless",
        "s_branch",
        "1: s_cmp_eq_u32 s0, 0\n s_cbranch_scc1 2f\n s_nop 0\n 2: s_branch 1b",
        "1: s_cmp_eq_u32 s0, 0\n s_cbranch_scc1 2f\n s_branch 1b\n 2:",
    ),
    # --- never written
    "vector register never written": Snippet(
        "unwritten", "v_add_nc_u32", "v_add_nc_u32 v2, v1, v0", "v_add_nc_u32 v2, v0, v0"
    ),
    "vector register never written, moved before it is used": Snippet(
        "unwritten",
        "ds_store_b32",
        "v_mov_b32 v2, v1\n ds_store_b32 v0, v2",
        "v_mov_b32 v2, v1\n v_mov_b32 v2, v0\n ds_store_b32 v0, v2",
        replace(WITH_LDS, vgprs=8),
    ),
    "scalar register never written": Snippet("unwritten", "s_mov_b32", "s_mov_b32 s4, s5", "s_mov_b32 s4, s1"),
    "upper half of an address": Snippet(
        "unwritten",
        "global_load",
        "global_load_b32 v2, v[0:1], off",
        "v_mov_b32 v1, 0\n global_load_b32 v2, v[0:1], off",
    ),
    "branch on a VCC nobody wrote": Snippet(
        "unwritten",
        "s_cbranch_vccz",
        "s_cbranch_vccz 1f\n s_nop 0\n 1:",
        "v_cmp_eq_u32 vcc_lo, 0, v0\n s_cbranch_vccz 1f\n s_nop 0\n 1:",
    ),
    "branch on an SCC one path wrote": Snippet(
        "unwritten",
        "s_cbranch_scc1",
        "s_cbranch_execz 1f\n s_cmp_eq_u32 s0, 0\n 1: s_cbranch_scc1 2f\n s_nop 0\n 2:",
        "s_cmp_eq_u32 s0, 0\n s_cbranch_execz 1f\n s_nop 0\n 1: s_cbranch_scc1 2f\n s_nop 0\n 2:",
    ),
    "accumulates into nothing": Snippet(
        "unwritten", "v_fmac", "v_fmac_f32 v1, v0, v0", "v_mov_b32 v1, 0\n v_fmac_f32 v1, v0, v0"
    ),
}


@dataclass(frozen=True, slots=True)
class AssembledSnippet:
    code: bytes
    entry: int


def snippets_source() -> str:
    """Return all snippets, bad and good, each as a separate function."""
    parts = []
    for number, snippet in enumerate(SNIPPETS.values()):
        for kind, text in (("bad", snippet.bad), ("good", snippet.good)):
            end = "" if text.endswith("s_code_end") else "\n s_endpgm"
            parts.append(f".p2align 8, 0\n.type {kind}_{number}, @function\n{kind}_{number}:\n {text}{end}\n")
    return "\n".join(parts)


@cache
def assemble_snippets() -> dict[str, tuple[AssembledSnippet, AssembledSnippet]]:
    """The bad and the good code of each snippet. Needs the assembler."""
    with TemporaryDirectory() as folder:
        path, built = Path(folder) / "snippets.s", Path(folder) / "snippets.o"
        path.write_text(snippets_source())
        command = [sys.executable, "-m", "ziglang", "clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
        subprocess.run([*command, "-c", str(path), "-o", str(built)], check=True)
        section = read_elf(built.read_bytes(), "snippets").sections[0]
    offset = {name: address for address, name in section.symbols}
    ends = dict(zip(sorted(offset.values()), [*sorted(offset.values())[1:], len(section.code)], strict=True))

    def code_of(name: str) -> AssembledSnippet:
        return AssembledSnippet(section.code[offset[name] : ends[offset[name]]], 0)

    return {name: (code_of(f"bad_{number}"), code_of(f"good_{number}")) for number, name in enumerate(SNIPPETS)}
