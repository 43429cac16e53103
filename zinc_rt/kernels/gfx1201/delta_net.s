// The gated delta rule, token by token: S = S * decay; delta = rate * (v - S k); S = S + k * delta;
// y = (S q) * shrink. One wave a row of S, which is one value dimension of one v head, kept in registers: element i
// of the key dimension is in lane i / 4, place i mod 4. Group x holds four rows, y is the v head, z the sequence.
//
// buffers: conv_out f32[T][row]; unit f32[T][2 * k_heads][d], q then k; gates f32[T][H][2]; state f32[rows][H][d][d];
//          new state, the same shape; sequence i32[T]; source i32[S] or 0; target i32[S] or 0 (rows of the states;
//          0: the sequence's number); y f32[T][H * d]; counts i32[3]
// constants: d, a multiple of 4, at most 128; row; k_heads; H; v_heads of a k head where grouped, 0 where tiled;
//            shrink f32
.include "zrt.inc"
.include "arith.inc"
.include "sequence.inc"
zrt_kernel name=delta_net, buffers=10, constants=6, threads=128, vgprs=40, sgprs=88

    s_load_b512 s[4:19], s[0:1], 0x0       // conv_out, unit, gates, state, new state, sequence, source, target
    s_load_b128 s[20:23], s[0:1], 0x40     // y, counts
    s_load_b128 s[24:27], s[0:1], 0x50     // d, row, k_heads, H
    s_load_b64 s[28:29], s[0:1], 0x60      // v_heads of a k head, shrink
    v_and_b32 v0, 31, v0
    v_lshlrev_b32 v1, 2, v0                // the lane's first element
    v_lshlrev_b32 v2, 4, v0
    s_bfe_u32 s30, ttmp8, 0x50019          // the wave in the group
    s_lshl_b32 s31, ttmp9, 2
    s_add_co_i32 s30, s30, s31             // the value dimension
    s_and_b32 s31, ttmp7, 0xffff           // the v head
    s_lshr_b32 s33, ttmp7, 16              // the sequence
    s_wait_kmcnt 0x0
    s_cmp_ge_u32 s30, s24
    s_cbranch_scc1 .Lend

    // Which k head: n mod k_heads, or n / (v_heads of one).
    s_mov_b32 s34, s26
    s_cmp_eq_u32 s28, 0
    s_cselect_b32 s34, s26, s28
    s_mov_b32 s35, 0                       // quotient
    s_mov_b32 s36, s31                     // remainder
.Ldivide:
    s_cmp_lt_u32 s36, s34
    s_cbranch_scc1 .Ldivided
    s_sub_co_i32 s36, s36, s34
    s_add_co_i32 s35, s35, 1
    s_branch .Ldivide
.Ldivided:
    s_cmp_eq_u32 s28, 0
    s_cselect_b32 s37, s36, s35            // the k head

    s_load_b32 s38, s[22:23], 0x0          // tokens
    s_mov_b32 s39, s33                     // the state row read
    s_mov_b32 s40, s33                     // and written
    s_lshl_b32 s41, s33, 2
    s_cmp_eq_u64 s[16:17], 0
    s_cbranch_scc1 .Lno_source
    s_load_b32 s39, s[16:17], s41 offset:0x0
.Lno_source:
    s_cmp_eq_u64 s[18:19], 0
    s_cbranch_scc1 .Lno_target
    s_load_b32 s40, s[18:19], s41 offset:0x0
.Lno_target:
    s_wait_kmcnt 0x0

    // Byte offsets. A row of S: ((state row * H + v head) * d + value dimension) * d * 4.
    s_mul_i32 s42, s24, s24
    s_lshl_b32 s42, s42, 2                 // bytes of a head's S
    s_mul_i32 s43, s24, s30
    s_lshl_b32 s44, s43, 2
    s_mov_b32 s45, 0
.macro state_row base, row
    s_mul_i32 s46, \row, s27
    s_add_co_i32 s46, s46, s31
    s_mul_hi_u32 s49, s46, s42
    s_mul_i32 s48, s46, s42
    s_add_nc_u64 s[48:49], s[48:49], s[44:45]
    s_add_nc_u64 \base, \base, s[48:49]
.endm
    state_row s[10:11], s39
    state_row s[12:13], s40

    // Where this head's k, q, v, gates and y of a token lie, and the steps from token to token.
    s_mul_i32 s50, s26, s24                // columns of all q heads, and of all k heads
    s_mul_i32 s51, s37, s24
    s_lshl_b32 s52, s51, 2                 // q
    s_add_co_i32 s54, s50, s51
    s_lshl_b32 s54, s54, 2                 // k
    s_mov_b32 s53, 0
    s_mov_b32 s55, 0
    s_add_nc_u64 s[52:53], s[6:7], s[52:53]
    s_add_nc_u64 s[54:55], s[6:7], s[54:55]
    s_mul_i32 s56, s31, s24
    s_add_co_i32 s56, s56, s30             // the value's column among v heads
    s_lshl_b32 s58, s56, 2
    s_mov_b32 s59, 0
    s_add_nc_u64 s[20:21], s[20:21], s[58:59]
    s_lshl_b32 s57, s50, 1
    s_add_co_i32 s56, s56, s57
    s_lshl_b32 s58, s56, 2
    s_add_nc_u64 s[4:5], s[4:5], s[58:59]
    s_lshl_b32 s58, s31, 3
    s_add_nc_u64 s[8:9], s[8:9], s[58:59]
    s_lshl_b32 s60, s50, 3                 // bytes of a token's units
    s_mov_b32 s61, 0
    s_lshl_b32 s62, s25, 2                 // of conv_out
    s_mov_b32 s63, 0
    s_lshl_b32 s64, s27, 3                 // of gates
    s_mov_b32 s65, 0
    s_mul_i32 s66, s27, s24
    s_lshl_b32 s66, s66, 2                 // of y
    s_mov_b32 s67, 0

    v_cmp_gt_u32 vcc_lo, s24, v1
    wait_vcc
    s_mov_b32 s68, vcc_lo                  // lanes that hold elements
    v_dual_mov_b32 v4, 0 :: v_dual_mov_b32 v5, 0
    v_dual_mov_b32 v6, 0 :: v_dual_mov_b32 v7, 0
    v_dual_mov_b32 v8, 0 :: v_dual_mov_b32 v9, 0
    v_dual_mov_b32 v10, 0 :: v_dual_mov_b32 v11, 0
    v_dual_mov_b32 v12, 0 :: v_dual_mov_b32 v13, 0
    v_dual_mov_b32 v14, 0 :: v_dual_mov_b32 v15, 0
    s_mov_b32 s69, -1
    s_mov_b32 exec_lo, s68
    global_load_b128 v[4:7], v2, s[10:11]  // S
    s_mov_b32 exec_lo, s69
    first_token s70, s[14:15], s33, s38, 76 // the token
    s_add_co_u32 s33, s33, 1
    first_token s71, s[14:15], s33, s38, 76 // the first that is another's
.macro advance base, bytes
    s_mul_hi_u32 s77, \bytes, s70
    s_mul_i32 s76, \bytes, s70
    s_add_nc_u64 \base, \base, s[76:77]
.endm
    advance s[52:53], s60
    advance s[54:55], s60
    advance s[4:5], s62
    advance s[8:9], s64
    advance s[20:21], s66
    s_wait_loadcnt 0x0
    s_cmp_ge_u32 s70, s71
    s_cbranch_scc1 .Ldone
.Ltoken:
    s_mov_b32 exec_lo, s68
    s_clause 0x1
    global_load_b128 v[8:11], v2, s[54:55] // k
    global_load_b128 v[12:15], v2, s[52:53] // q
    s_mov_b32 exec_lo, s69
    s_load_b64 s[72:73], s[8:9], 0x0       // decay, rate
    s_load_b32 s74, s[4:5], 0x0            // v
    s_wait_kmcnt 0x0
    v_mul_f32 v4, s72, v4
    v_mul_f32 v5, s72, v5
    v_mul_f32 v6, s72, v6
    v_mul_f32 v7, s72, v7
    s_wait_loadcnt 0x1
    v_mul_f32 v16, v4, v8
    v_mul_f32 v17, v5, v9
    v_mul_f32 v18, v6, v10
    v_mul_f32 v19, v7, v11
    f32_sum4 v20, v16, v17, v18, v19
    f32_butterfly v20, v21
    v_add_f32 v20, 0, v20                  // a sum that starts at +0 is never -0
    v_sub_f32 v20, s74, v20
    v_mul_f32 v20, s73, v20                // delta
    s_mov_b32 exec_lo, s68                 // 0 of the others stays 0: it times an infinite delta is NaN
    v_mul_f32 v16, v8, v20
    v_mul_f32 v17, v9, v20
    v_mul_f32 v18, v10, v20
    v_mul_f32 v19, v11, v20
    v_add_f32 v4, v4, v16
    v_add_f32 v5, v5, v17
    v_add_f32 v6, v6, v18
    v_add_f32 v7, v7, v19
    s_mov_b32 exec_lo, s69
    s_wait_loadcnt 0x0
    v_mul_f32 v16, v4, v12
    v_mul_f32 v17, v5, v13
    v_mul_f32 v18, v6, v14
    v_mul_f32 v19, v7, v15
    f32_sum4 v20, v16, v17, v18, v19
    f32_butterfly v20, v21
    v_add_f32 v20, 0, v20
    v_mul_f32 v20, s29, v20
    v_mov_b32 v22, 0
    s_mov_b32 exec_lo, 1
    global_store_b32 v22, v20, s[20:21]
    s_mov_b32 exec_lo, s69
    s_add_nc_u64 s[52:53], s[52:53], s[60:61]
    s_add_nc_u64 s[54:55], s[54:55], s[60:61]
    s_add_nc_u64 s[4:5], s[4:5], s[62:63]
    s_add_nc_u64 s[8:9], s[8:9], s[64:65]
    s_add_nc_u64 s[20:21], s[20:21], s[66:67]
    s_add_co_i32 s70, s70, 1
    s_cmp_lt_u32 s70, s71
    s_cbranch_scc1 .Ltoken
.Ldone:
    s_mov_b32 exec_lo, s68
    global_store_b128 v2, v[4:7], s[12:13]
.Lend:
    s_endpgm
zrt_end
