// silu(gate) * up of two weights of one type and shape on one input: a wave makes its rows of the gate, then the same rows
// of up.
//
// grid: x tokens, y blocks of 16 rows, z choices of experts
// buffers: x, ids, row, then for gate and up: weight, y (up's alone), scale, 0; all as matvec.inc has them
// constants: k, choices, flags (4: x is [grid x][choices][k]), 0, 0, 0, 0, 0; then for gate and up: bytes a row of plane
//            0, offset and bytes a row of planes 1 and 2, flags (bits 1:0), n, 0
.set PARTS, 2
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_glu_\type, buffers=11, constants=24, threads=128, vgprs=96, sgprs=80
    matvec_common
    s_mov_b32 s76, 0                    // bytes to the arguments of the half
    matvec_part s76
    s_or_b32 s26, s26, s42
    matvec_place
.Lhalf:
    matvec_dots \type
    matvec_value
    s_mov_b32 exec_lo, -1
    s_cmp_lg_u32 s76, 0
    s_cbranch_scc1 .Lboth
    .irp r, 0, 1, 2, 3
    v_readlane_b32 s[72+\r], v8, \r
    .endr
    s_mov_b32 s76, 32
    matvec_part s76
    s_branch .Lhalf
.Lboth:
    .irp r, 0, 1, 2, 3
    v_writelane_b32 v9, s[72+\r], \r
    .endr
    s_sub_co_i32 s33, s18, s30
    s_min_u32 s33, s33, ROWS
    s_bfm_b32 exec_lo, s33, 0
    f32_silu v10, v9, v11, v12, v13, v14
    v_mul_f32 v8, v10, v8
    matvec_put
.Lend:
    s_endpgm
zrt_end
.endm
