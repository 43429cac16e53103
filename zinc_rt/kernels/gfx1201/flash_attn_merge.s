// The chunks that a flash_attn_parts kernel left, merged in order and divided: docs/canonical-1.md, "Attention". A wave
// is 32 dims of one head of a query. Of 32 chunks at a time each lane makes one's factors, as the maximum so far is
// the largest of a prefix; o and l then take them one after the other.
//
// buffers: parts f32[T][heads][chunks][m, l, o[value_dim]]; position i32[T]; out f32[T][heads][value_dim];
//          gate f32[T][heads][gate_skip + value_dim] or 0: out is then SIGMOID_MUL by its last value_dim columns
// constants: heads; value_dim; chunks; window or 0; gate_skip. Grid: heads, tokens, steps of 32 dims
.include "zrt.inc"
.include "arith.inc"
.set M, 4                                           // m, l of the lane's chunk
.set MOST, 6                                        // the largest m up to it
.set BEFORE, 7                                      // and up to the one before
.set A, 8                                           // exp(BEFORE - MOST)
.set B, 9                                           // exp(m - MOST)
.set L, 10
.set O, 11
.set T, 12
.set PART, 24                                       // the dim of 32 chunks
zrt_kernel name=flash_attn_merge, buffers=4, constants=5, threads=32, vgprs=56, sgprs=72

.macro wait_lanes                                   // SGPRs that VALUs wrote, read by VALUs that may know older values
    s_wait_alu 0xf1ff                               // va_sdst
.endm

    s_load_b128 s[4:7], s[0:1], 0x0                 // parts, position
    s_load_b128 s[8:11], s[0:1], 0x10               // out, gate
    s_load_b128 s[12:15], s[0:1], 0x20              // heads, value_dim, chunks, window
    s_load_b32 s43, s[0:1], 0x30                    // gate_skip
    s_and_b32 s2, ttmp7, 0xffff                     // the token
    s_lshr_b32 s3, ttmp7, 16
    s_lshl_b32 s3, s3, 5
    s_lshl_b32 s20, s2, 2
    v_and_b32 v0, 31, v0
    v_add_nc_u32 v1, s3, v0                         // the dim
    v_mov_b32 v[L], 0
    v_mov_b32 v[O], 0
    s_wait_kmcnt 0x0
    s_load_b32 s21, s[6:7], s20 offset:0x0          // position: the last visible key
    s_mul_i32 s22, s2, s12
    s_add_co_u32 s22, s22, ttmp9                    // token * heads + head
    s_mul_hi_u32 s25, s22, s13
    s_mul_i32 s24, s22, s13
    s_lshl_b64 s[24:25], s[24:25], 2
    s_add_nc_u64 s[8:9], s[8:9], s[24:25]
    s_cmp_eq_u64 s[10:11], 0
    s_cbranch_scc1 .Lno_gate
    s_add_co_u32 s44, s13, s43
    s_mov_b32 s45, 0
    s_mul_hi_u32 s25, s22, s44
    s_mul_i32 s24, s22, s44
    s_mov_b32 s44, s43
    s_add_nc_u64 s[24:25], s[24:25], s[44:45]
    s_lshl_b64 s[24:25], s[24:25], 2
    s_add_nc_u64 s[10:11], s[10:11], s[24:25]
.Lno_gate:
    s_lshl_b32 s26, s13, 2
    s_add_co_u32 s26, s26, 8                        // bytes of a part
    s_mov_b32 s27, 0
    s_mul_i32 s22, s22, s14
    s_mul_hi_u32 s25, s22, s26
    s_mul_i32 s24, s22, s26
    s_add_nc_u64 s[4:5], s[4:5], s[24:25]           // m, l of the batch's first chunk
    s_lshl_b32 s28, s26, 5
    s_mov_b32 s29, 0
    s_mov_b64 s[16:17], s[4:5]                      // the next chunk's o
    s_sub_co_u32 s30, s13, 1
    v_min_u32 v2, s30, v1                           // lanes beyond the last dim repeat it
    v_lshlrev_b32 v2, 2, v2
    v_mul_lo_u32 v3, s26, v0
    s_wait_kmcnt 0x0
    s_sub_co_i32 s42, s21, s15
    s_add_co_i32 s42, s42, 1
    s_max_i32 s42, s42, 0
    s_cmp_eq_u32 s15, 0
    s_cselect_b32 s42, 0, s42                       // the first visible key
    s_ashr_i32 s41, s21, 8
    s_lshr_b32 s42, s42, 8
    s_sub_co_i32 s41, s41, s42
    s_add_co_i32 s41, s41, 1                        // chunks left
    s_mov_b32 s33, 0xff800000                       // the largest m so far
    s_cmp_gt_i32 s41, 0
    s_cbranch_scc1 .Lbatch
    v_mov_b32 v[L], 1.0                             // a query that sees no key gives 0
    s_branch .Ldivide

.Lbatch:
    s_min_u32 s34, s41, 32
    s_bfm_b64 s[36:37], s34, 0
    v_mov_b32 v[M], 0xff800000
    v_mov_b32 v[M + 1], 0
    s_mov_b32 exec_lo, s36
    global_load_b64 v[M:M + 1], v3, s[4:5]
    s_mov_b32 exec_lo, -1
    .set chunk, 0
    .rept 32
    s_cmp_le_u32 s34, chunk
    s_cbranch_scc1 .Lloaded
    global_load_b32 v[PART + chunk], v2, s[16:17] offset:8
    s_add_nc_u64 s[16:17], s[16:17], s[26:27]
    .set chunk, chunk + 1
    .endr
.Lloaded:
    s_wait_loadcnt 0x0
    v_mov_b32 v[MOST], v[M]
    .irp distance, 1, 2, 4, 8
    v_mov_b32 v[T], v[MOST]
    v_mov_b32_dpp v[T], v[MOST] row_shr:\distance row_mask:0xf bank_mask:0xf
    v_maximum_f32 v[MOST], v[MOST], v[T]
    .endr
    v_maximum_f32 v[MOST], s33, v[MOST]
    v_readlane_b32 s38, v[MOST], 15
    wait_lanes
    v_mov_b32 v[BEFORE], s33
    s_mov_b32 exec_lo, 0xffff0000
    v_maximum_f32 v[MOST], s38, v[MOST]
    v_mov_b32 v[BEFORE], s38
    s_mov_b32 exec_lo, -1
    v_mov_b32_dpp v[BEFORE], v[MOST] row_shr:1 row_mask:0xf bank_mask:0xf
    v_readlane_b32 s33, v[MOST], 31
    v_sub_f32 v[A], v[BEFORE], v[MOST]
    f32_exp v[A], v[A], v[T], v[T + 1], v[T + 2]
    v_sub_f32 v[B], v[M], v[MOST]
    f32_exp v[B], v[B], v[T], v[T + 1], v[T + 2]
    v_mul_f32 v[M + 1], v[M + 1], v[B]              // l_c * b
    .irp first, 0, 8, 16, 24
    s_cmp_le_u32 s34, \first
    s_cbranch_scc1 .Lmerged
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    v_readlane_b32 s[48 + \i], v[A], \first + \i
    v_readlane_b32 s[56 + \i], v[B], \first + \i
    v_readlane_b32 s[64 + \i], v[M + 1], \first + \i
    .endr
    wait_lanes
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    s_cmp_le_u32 s34, \first + \i
    s_cbranch_scc1 .Lmerged
    v_mul_f32 v[L], s[48 + \i], v[L]
    v_mul_f32 v[O], s[48 + \i], v[O]
    v_mul_f32 v[T], s[56 + \i], v[PART + \first + \i]
    v_add_f32 v[L], s[64 + \i], v[L]
    v_add_f32 v[O], v[O], v[T]
    .endr
    .endr
.Lmerged:
    wait_lanes                                      // of s33
    s_add_nc_u64 s[4:5], s[4:5], s[28:29]
    s_sub_co_u32 s41, s41, s34
    s_cmp_lg_u32 s41, 0
    s_cbranch_scc1 .Lbatch

.Ldivide:
    v_cmp_gt_u32 vcc_lo, s13, v1
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend
    f32_div v[M], v[O], v[L], v[T], v[T + 1], v[T + 2], v[T + 3], v[T + 4], v[T + 5]
    s_cmp_eq_u64 s[10:11], 0
    s_cbranch_scc1 .Lstore
    global_load_b32 v[O], v2, s[10:11]
    s_wait_loadcnt 0x0
    f32_sigmoid v[L], v[O], v[T], v[T + 1], v[T + 2], v[T + 3]
    v_mul_f32 v[M], v[M], v[L]
.Lstore:
    global_store_b32 v2, v[M], s[8:9]
.Lend:
    s_endpgm
zrt_end
