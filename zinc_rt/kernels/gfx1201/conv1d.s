// Causal depthwise convolution of width 4 over the tokens of each sequence, from the oldest tap; silu if asked.
// A lane is a channel; group x 256 channels, group y a sequence. The last three inputs stay in registers.
//
// buffers: x f32[T][C]; weight f32[C][4]; state f32[rows][3][C]; new state, the same shape; sequence i32[T];
//          source i32[S] or 0; target i32[S] or 0 (rows of the states; 0: the sequence's number); bias f32[C] or 0;
//          y f32[T][C]; counts i32[3]
// constants: C; silu, 0 or 1
.include "zrt.inc"
.include "arith.inc"
.include "sequence.inc"
zrt_kernel name=conv1d, buffers=10, constants=2, threads=256, vgprs=32, sgprs=56

    s_load_b512 s[4:19], s[0:1], 0x0                // x, weight, state, new state, sequence, source, target, bias
    s_load_b128 s[20:23], s[0:1], 0x40              // y, counts
    s_load_b64 s[24:25], s[0:1], 0x50               // C, silu
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 8, v0                 // the channel
    s_and_b32 s26, ttmp7, 0xffff                    // the sequence
    s_wait_kmcnt 0x0
    v_cmp_gt_u32 vcc_lo, s24, v0
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend
    s_load_b32 s27, s[22:23], 0x0                   // tokens
    s_mov_b32 s28, s26                              // the row read
    s_mov_b32 s29, s26                              // the row written
    s_lshl_b32 s30, s26, 2
    s_cmp_eq_u64 s[14:15], 0
    s_cbranch_scc1 .Lno_source
    s_load_b32 s28, s[14:15], s30 offset:0x0
.Lno_source:
    s_cmp_eq_u64 s[16:17], 0
    s_cbranch_scc1 .Lno_target
    s_load_b32 s29, s[16:17], s30 offset:0x0
.Lno_target:
    s_wait_kmcnt 0x0
    s_lshl_b32 s31, s24, 2                          // bytes of a row of channels
    s_mul_i32 s34, s31, 3
    s_mul_hi_u32 s37, s34, s28
    s_mul_i32 s36, s34, s28
    s_add_nc_u64 s[8:9], s[8:9], s[36:37]
    s_mul_hi_u32 s37, s34, s29
    s_mul_i32 s36, s34, s29
    s_add_nc_u64 s[10:11], s[10:11], s[36:37]
    s_mov_b32 s38, s31
    s_mov_b32 s39, 0
    s_add_nc_u64 s[40:41], s[8:9], s[38:39]
    s_add_nc_u64 s[42:43], s[40:41], s[38:39]
    v_lshlrev_b32 v1, 2, v0
    v_lshlrev_b32 v2, 4, v0
    v_mov_b32 v3, 0
    s_clause 0x3
    global_load_b32 v4, v1, s[8:9]                  // v4, v5, v6: the inputs before, the oldest first
    global_load_b32 v5, v1, s[40:41]
    global_load_b32 v6, v1, s[42:43]
    global_load_b128 v[8:11], v2, s[6:7]            // the taps
    s_cmp_eq_u64 s[18:19], 0
    s_cbranch_scc1 .Lno_bias
    global_load_b32 v3, v1, s[18:19]
.Lno_bias:
    s_cselect_b32 s35, 0, -1                        // there is one
    first_token s28, s[12:13], s26, s27, 44         // the token
    s_add_co_u32 s26, s26, 1
    first_token s29, s[12:13], s26, s27, 44         // the first that is another's
    s_mul_hi_u32 s37, s31, s28
    s_mul_i32 s36, s31, s28
    s_add_nc_u64 s[4:5], s[4:5], s[36:37]
    s_add_nc_u64 s[20:21], s[20:21], s[36:37]
    s_wait_loadcnt 0x0
    s_cmp_ge_u32 s28, s29
    s_cbranch_scc1 .Ldone
.Ltoken:
    global_load_b32 v7, v1, s[4:5]
    v_mul_f32 v12, v4, v8
    v_add_f32 v12, 0, v12
    v_mul_f32 v13, v5, v9
    v_add_f32 v12, v12, v13
    v_mul_f32 v13, v6, v10
    v_add_f32 v12, v12, v13
    s_wait_loadcnt 0x0
    v_mul_f32 v13, v7, v11
    v_add_f32 v12, v12, v13
    s_cmp_eq_u32 s35, 0
    s_cbranch_scc1 .Lunbiased
    v_add_f32 v12, v12, v3
.Lunbiased:
    s_cmp_eq_u32 s25, 0
    s_cbranch_scc1 .Lstore
    f32_silu v12, v12, v14, v15, v16, v17
.Lstore:
    global_store_b32 v1, v12, s[20:21]
    v_mov_b32 v4, v5
    v_mov_b32 v5, v6
    v_mov_b32 v6, v7
    s_add_nc_u64 s[4:5], s[4:5], s[38:39]
    s_add_nc_u64 s[20:21], s[20:21], s[38:39]
    s_add_co_i32 s28, s28, 1
    s_cmp_lt_u32 s28, s29
    s_cbranch_scc1 .Ltoken
.Ldone:
    s_add_nc_u64 s[40:41], s[10:11], s[38:39]
    s_add_nc_u64 s[42:43], s[40:41], s[38:39]
    global_store_b32 v1, v4, s[10:11]
    global_store_b32 v1, v5, s[40:41]
    global_store_b32 v1, v6, s[42:43]
.Lend:
    s_endpgm
zrt_end
