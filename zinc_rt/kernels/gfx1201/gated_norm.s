// SSM_GATED_NORM: y = silu(z) * RMS_NORM of x over groups of `size` neighbours, f32.
// Buffers: x, weight, y, z. Constants: size, eps, columns of a row. Grid: groups of a row, rows.
.set NORM_RESIDUAL, 0
.include "zrt.inc"
.include "arith.inc"
.include "norm.inc"

zrt_kernel name=gated_norm, buffers=4, constants=3, threads=32, vgprs=32, sgprs=24
    s_clause 2
    s_load_b64 s[4:5], s[0:1], 0
    s_load_b128 s[8:11], s[0:1], 8
    s_load_b64 s[6:7], s[0:1], 24
    s_load_b96 s[12:14], s[0:1], 32
    norm_group 4, 6, 10
    norm_reciprocal
    v_lshlrev_b32 v1, 4, v0
    s_mov_b32 s14, 0
.macro gate d, z, w
    norm_scale \d
    v_mul_f32 v[\d], v[\d], v[\w]
    f32_silu v4, v[\z], v20, v21, v22, v23
    v_mul_f32 v[\d], v4, v[\d]
.endm
.Lgate_128:
    s_cmp_lt_u32 s14, s18
    s_cbranch_scc0 .Lgate_tail
    s_clause 2
    global_load_b128 v[8:11], v1, s[4:5]
    global_load_b128 v[12:15], v1, s[6:7]
    global_load_b128 v[16:19], v1, s[8:9]
    s_wait_loadcnt 0
    gate 8, 12, 16
    gate 9, 13, 17
    gate 10, 14, 18
    gate 11, 15, 19
    global_store_b128 v1, v[8:11], s[10:11]
    v_add_nc_u32 v1, 512, v1
    s_add_co_u32 s14, s14, 512
    s_branch .Lgate_128
.Lgate_tail:
    v_lshl_add_u32 v1, v0, 2, s14
.Lgate_one:
    v_cmp_gt_u32 vcc_lo, s16, v1
    wait_vcc
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lend
    s_clause 2
    global_load_b32 v8, v1, s[4:5]
    global_load_b32 v12, v1, s[6:7]
    global_load_b32 v16, v1, s[8:9]
    s_wait_loadcnt 0
    gate 8, 12, 16
    global_store_b32 v1, v8, s[10:11]
    v_add_nc_u32 v1, 128, v1
    s_branch .Lgate_one
.Lend:
    s_endpgm
zrt_end
