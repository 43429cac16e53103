// SAMPLE, last: running sums of the weights in order, the cut by top_p, the draw. One wave a row, scalar code: the
// order of the sums is the definition. Rows at temperature 0 or below have their token from argmax already.
//
// buffers: pairs u32[L][P][2]; sampling f32[L][4]; weights f32[L][2 P] of sample_weights; seed i32[L][2];
//     choice i32[L]; position i32[L]; token i32[L]
// constants: V; P; bytes of a row of pairs
.include "zrt.inc"
.include "sample.inc"
zrt_kernel name=sample_draw, buffers=7, constants=3, threads=32, vgprs=8, sgprs=72

// Adds weights up in s32 and counts those that are kept in s33, from the first one up to all, or until `s32 compare
// with` holds; the weight with which it holds is added and not counted.
.macro sum_weights compare, with
    s_mov_b32 s32, 0
    s_mov_b32 s33, 0
    s_mov_b64 s[34:35], s[8:9]
.Lblock\@:
    s_load_b512 s[48:63], s[34:35], 0x0
    s_wait_kmcnt 0x0
    .irp j, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63
    s_add_f32 s32, s32, s\j
    .ifnb \compare
    \compare s32, \with
    s_cbranch_scc1 .Lreached\@
    .endif
    s_cmp_lg_u32 s\j, 0
    s_add_co_ci_u32 s33, s33, 0
    .endr
    s_add_nc_u64 s[34:35], s[34:35], 64
    s_cmp_lg_u64 s[34:35], s[36:37]
    s_cbranch_scc1 .Lblock\@
.Lreached\@:
.endm

    s_load_b256 s[4:11], s[0:1], 0x0                // pairs, sampling, weights, seed
    s_load_b128 s[12:15], s[0:1], 0x20              // choice, position
    s_load_b64 s[16:17], s[0:1], 0x30               // token
    s_load_b96 s[20:22], s[0:1], 0x38               // V, P, bytes
    s_lshl_b32 s23, ttmp9, 2
    s_lshl_b32 s24, ttmp9, 3
    s_lshl_b32 s25, ttmp9, 4
    s_wait_kmcnt 0x0
    s_load_b128 s[28:31], s[6:7], s25               // temperature, top_k, top_p, min_p
    s_load_b64 s[10:11], s[10:11], s24              // the key of the generator
    s_load_b32 s12, s[12:13], s23                   // its counter
    s_load_b32 s13, s[14:15], s23
    sample_row 4, s22, 34
    sample_row 8, s22, 34
    s_wait_kmcnt 0x0
    s_cmp_le_f32 s28, 0
    s_cbranch_scc1 .Lend                            // greedy
    sample_candidates s20, s29, s20, s26
    s_add_co_i32 s26, s20, 15
    s_lshr_b32 s26, s26, 4
    s_lshl_b32 s26, s26, 6
    s_mov_b32 s27, 0
    s_add_nc_u64 s[36:37], s[8:9], s[26:27]         // past the last weight

    // Philox4x32-10: counter s12, s13, s14, s15, key s10, s11.
    s_mov_b32 s14, 0
    s_mov_b32 s15, 0
    s_mov_b32 s26, 10
.Lround:
    s_mul_hi_u32 s38, s12, 0xd2511f53
    s_mul_i32 s39, s12, 0xd2511f53
    s_mul_hi_u32 s40, s14, 0xcd9e8d57
    s_mul_i32 s41, s14, 0xcd9e8d57
    s_xor_b32 s12, s40, s13
    s_xor_b32 s12, s12, s10
    s_mov_b32 s13, s41
    s_xor_b32 s14, s38, s15
    s_xor_b32 s14, s14, s11
    s_mov_b32 s15, s39
    s_add_co_i32 s10, s10, 0x9e3779b9
    s_add_co_i32 s11, s11, 0xbb67ae85
    s_sub_co_i32 s26, s26, 1
    s_cmp_lg_u32 s26, 0
    s_cbranch_scc1 .Lround
    s_lshr_b32 s12, s12, 8
    s_cvt_f32_u32 s12, s12
    s_mul_f32 s12, s12, 0x33800000                  // u = bits * 2^-24

    sum_weights                                     // the total, of how many
    s_cmp_lt_f32 s30, 1.0
    s_cbranch_scc0 .Ldraw
    s_mul_f32 s30, s30, s32
    s_cmp_u_f32 s30, s30
    s_cselect_b32 s30, 0x7f800000, s30              // then up to the first sum that is NaN
    sum_weights s_cmp_nlt_f32, s30
    s_add_co_i32 s33, s33, 1
.Ldraw:
    s_sub_co_i32 s31, s33, 1                        // the last that may be drawn
    s_mul_f32 s30, s12, s32
    sum_weights s_cmp_gt_f32, s30
    s_min_u32 s33, s33, s31
    s_lshl_b32 s33, s33, 3
    s_add_co_i32 s33, s33, 4
    s_load_b32 s33, s[4:5], s33
    v_mov_b32 v0, s23
    s_mov_b32 exec_lo, 1
    s_wait_kmcnt 0x0
    v_mov_b32 v1, s33
    global_store_b32 v0, v1, s[16:17]
.Lend:
    s_endpgm
zrt_end
