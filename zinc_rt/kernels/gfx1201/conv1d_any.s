// As conv1d, of any width. Inputs stay where they are, in the state that is read and in x, as one line of each sequence
// and channel: its first `taps` - 1 are the state's.
//
// buffers: x f32[T][C]; weight f32[C][taps]; state f32[rows][taps - 1][C]; new state, the same shape; sequence i32[T];
//          source i32[S] or 0; target i32[S] or 0; bias f32[C] or 0; y f32[T][C]; counts i32[3]
// constants: C; silu, 0 or 1; taps
.include "zrt.inc"
.include "arith.inc"
.include "sequence.inc"
zrt_kernel name=conv1d_any, buffers=10, constants=3, threads=256, vgprs=24, sgprs=64

// s[46:47] = where all channels' input number `at` of the line lies.
.macro line_row at
    s_cmp_lt_u32 \at, s34
    s_cselect_b32 s48, s8, s4
    s_cselect_b32 s49, s9, s5
    s_mul_hi_u32 s47, s31, \at
    s_mul_i32 s46, s31, \at
    s_add_nc_u64 s[46:47], s[46:47], s[48:49]
.endm

    s_load_b512 s[4:19], s[0:1], 0x0                // x, weight, state, new state, sequence, source, target, bias
    s_load_b128 s[20:23], s[0:1], 0x40              // y, counts
    s_load_b96 s[24:26], s[0:1], 0x50               // C, silu, taps
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 8, v0                 // the channel
    s_and_b32 s27, ttmp7, 0xffff                    // the sequence
    s_wait_kmcnt 0x0
    v_cmp_gt_u32 vcc_lo, s24, v0
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend
    s_load_b32 s28, s[22:23], 0x0                   // tokens
    s_mov_b32 s29, s27                              // the row read
    s_mov_b32 s30, s27                              // the row written
    s_lshl_b32 s36, s27, 2
    s_cmp_eq_u64 s[14:15], 0
    s_cbranch_scc1 .Lno_source
    s_load_b32 s29, s[14:15], s36 offset:0x0
.Lno_source:
    s_cmp_eq_u64 s[16:17], 0
    s_cbranch_scc1 .Lno_target
    s_load_b32 s30, s[16:17], s36 offset:0x0
.Lno_target:
    s_wait_kmcnt 0x0
    s_lshl_b32 s31, s24, 2                          // bytes of a row of channels
    s_mov_b32 s38, s31
    s_mov_b32 s39, 0
    s_sub_co_u32 s34, s26, 1                        // inputs of the line that are the state's
    s_mul_hi_u32 s45, s31, s34
    s_mul_i32 s44, s31, s34                         // bytes of a sequence's state
    s_mul_hi_u32 s37, s44, s29
    s_mul_i32 s36, s44, s29
    s_add_nc_u64 s[8:9], s[8:9], s[36:37]
    s_mul_hi_u32 s37, s44, s30
    s_mul_i32 s36, s44, s30
    s_add_nc_u64 s[10:11], s[10:11], s[36:37]
    v_lshlrev_b32 v1, 2, v0
    s_lshl_b32 s35, s26, 2                          // bytes of a channel's taps
    v_mul_lo_u32 v2, s35, v0
    v_mov_b32 v3, 0
    s_cmp_eq_u64 s[18:19], 0
    s_cbranch_scc1 .Lno_bias
    global_load_b32 v3, v1, s[18:19]
.Lno_bias:
    s_cselect_b32 s33, 0, -1                        // there is one
    first_token s40, s[12:13], s27, s28, 52         // the token
    s_add_co_u32 s27, s27, 1
    first_token s41, s[12:13], s27, s28, 52         // the first that is another's
    s_sub_co_u32 s42, s41, s40                      // how many
    s_mul_hi_u32 s37, s31, s40
    s_mul_i32 s36, s31, s40
    s_add_nc_u64 s[4:5], s[4:5], s[36:37]
    s_sub_nc_u64 s[4:5], s[4:5], s[44:45]           // x, as if behind the state
    s_add_nc_u64 s[20:21], s[20:21], s[36:37]
    s_mov_b32 s43, 0
    s_cmp_ge_u32 s40, s41
    s_cbranch_scc1 .Ldone
.Ltoken:
    v_mov_b32 v12, 0
    v_mov_b32 v4, v2
    s_mov_b32 s50, s43                              // the input of the oldest tap
    s_add_co_u32 s51, s43, s26
.Ltap:
    line_row s50
    global_load_b32 v7, v1, s[46:47]
    global_load_b32 v8, v4, s[6:7]
    v_add_nc_u32 v4, 4, v4
    s_wait_loadcnt 0x0
    v_mul_f32 v7, v7, v8
    v_add_f32 v12, v12, v7
    s_add_co_u32 s50, s50, 1
    s_cmp_lt_u32 s50, s51
    s_cbranch_scc1 .Ltap
    s_cmp_eq_u32 s33, 0
    s_cbranch_scc1 .Lunbiased
    v_add_f32 v12, v12, v3
.Lunbiased:
    s_cmp_eq_u32 s25, 0
    s_cbranch_scc1 .Lstore
    f32_silu v12, v12, v14, v15, v16, v17
.Lstore:
    global_store_b32 v1, v12, s[20:21]
    s_add_nc_u64 s[20:21], s[20:21], s[38:39]
    s_add_co_u32 s43, s43, 1
    s_cmp_lt_u32 s43, s42
    s_cbranch_scc1 .Ltoken
.Ldone:
    s_add_co_u32 s51, s42, s34
    s_cmp_ge_u32 s42, s51
    s_cbranch_scc1 .Lend                            // one tap has no state
.Lkeep:                                             // rising: the row that is read may be the one that is written
    line_row s42
    global_load_b32 v7, v1, s[46:47]
    s_wait_loadcnt 0x0
    global_store_b32 v1, v7, s[10:11]
    s_add_nc_u64 s[10:11], s[10:11], s[38:39]
    s_add_co_u32 s42, s42, 1
    s_cmp_lt_u32 s42, s51
    s_cbranch_scc1 .Lkeep
.Lend:
    s_endpgm
zrt_end
