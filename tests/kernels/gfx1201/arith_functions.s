// Every macro of arith.inc that is a function: out[i] = function(a[i], b[i]), f32. The constant says which one.
// Butterflies work on the 32 elements of a workgroup. Grid: elements / 32.
.include "zrt.inc"
.include "arith.inc"

.macro case number, macro, operands:vararg
    s_cmp_lg_u32 s10, \number
    s_cbranch_scc1 .Lnext\@
    \macro \operands
    s_branch .Lstore
.Lnext\@:
.endm

// The inputs are overwritten afterwards: a macro whose result needs them intact does not notice.
.macro butterfly_of macro
    v_mov_b32 v3, v1
    \macro v3, v4
.endm

.macro sum4_of_one
    v_mul_f32 v4, v2, v1
    v_add_f32 v5, v2, v1
    f32_sum4 v3, v1, v2, v4, v5
.endm

.macro sum4_kept_of_one
    v_mul_f32 v4, v2, v1
    v_add_f32 v5, v2, v1
    f32_sum4 v3, v1, v2, v4, v5, v6
.endm

.macro onto_itself macro, temporaries:vararg
    v_mov_b32 v3, v1
    \macro v3, v3, \temporaries
.endm

zrt_kernel name=arith_functions, buffers=3, constants=1, threads=32, vgprs=12, sgprs=12
    s_clause 1
    s_load_b128 s[4:7], s[0:1], 0
    s_load_b96 s[8:10], s[0:1], 16
    s_lshl_b32 s2, ttmp9, 5
    v_add_lshl_u32 v0, v0, s2, 2
    s_wait_kmcnt 0
    global_load_b32 v1, v0, s[4:5]
    global_load_b32 v2, v0, s[6:7]
    v_mov_b32 v3, 0
    s_wait_loadcnt 0
    case 0, f32_exp, v3, v1, v4, v5, v6
    case 1, f32_exp, v3, -v1, v4, v5, v6
    case 2, f32_log, v3, v1, v4, v5, v6, v7, v8
    case 3, f32_log_normal, v3, v1, v4, v5, v6, v7
    case 4, f32_div, v3, v1, v2, v4, v5, v6, v7, v8, v9
    case 5, f32_rcp, v3, v1, v4, v5, v6, v7
    case 6, f32_rcp_normal, v3, v1, v4, v5, v6, v7
    case 7, f32_sqrt, v3, v1, v4, v5, v6, v7
    case 8, f32_rsqrt, v3, v1, v4, v5, v6, v7
    case 9, f32_sigmoid, v3, v1, v4, v5, v6, v7
    case 10, f32_silu, v3, v1, v4, v5, v6, v7
    case 11, f32_gelu, v3, v1, v4, v5, v6, v7
    case 12, f32_tanh, v3, v1, v4, v5, v6, v7
    case 13, f32_softplus, v3, v1, v4, v5, v6, v7
    case 14, sum4_of_one
    case 15, sum4_kept_of_one
    case 16, f32_max, v3, v1, v2
    case 17, f32_min, v3, v1, v2
    case 18, butterfly_of, f32_butterfly
    case 19, butterfly_of, f32_max_butterfly
    case 20, onto_itself, f32_exp, v4, v5, v6
    case 21, onto_itself, f32_log, v4, v5, v6, v7, v8
    case 22, onto_itself, f32_div, v2, v4, v5, v6, v7, v8, v9
    case 23, onto_itself, f32_sqrt, v4, v5, v6, v7
    case 24, onto_itself, f32_rsqrt, v4, v5, v6, v7
    case 25, onto_itself, f32_sigmoid, v4, v5, v6, v7
    case 26, onto_itself, f32_silu, v4, v5, v6, v7
    case 27, onto_itself, f32_gelu, v4, v5, v6, v7
    case 28, onto_itself, f32_tanh, v4, v5, v6, v7
    case 29, onto_itself, f32_rcp, v4, v5, v6, v7
.Lstore:
    global_store_b32 v0, v3, s[8:9]
    s_endpgm
zrt_end
