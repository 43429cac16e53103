// Router probabilities, the k best experts, their weights. One wave a token.
//
// Expert e sits where the canonical dot has element e: lane (e / 4) mod 32, place e mod 4, block e / 128. LDS holds
// four dwords a lane and block, probabilities and behind them the keys that are still to be chosen (best.inc); what
// is no expert has the key of nothing and a probability that no sum meets. Behind them the keys of groups, a lane a
// group.
//
// buffers: logits f32[T][E]; select_bias f32[E] or 0; ids i32[T][k]; weights f32[T][k]
// constants: E, at most 1024; k, at most 128; renormalise, 0 or 1; scale f32, where not to be used 1;
//            softmax, 1, or 0 for a sigmoid; groups, of which groups_used are eligible; 1: all experts are
.include "zrt.inc"
.include "arith.inc"
.include "best.inc"
.set MOE_KEYS, 4096                                 // bytes of 1024 probabilities
.set MOE_GROUPS, 8192
.set NOTHING, 0x80000000                            // best_none's
.set NAN_KEY, 0x80000001                            // a NaN comes last

// EXEC: lanes whose group, v3, is one: s19 + lane. v4: where its experts' keys lie behind MOE_KEYS, v5: its own behind
// MOE_GROUPS. s20: EXEC before.
.macro group_lanes
    s_wait_alu 0xfffe
    v_add_nc_u32 v3, s19, v0
    v_mul_lo_u32 v4, s27, v3
    v_lshlrev_b32 v5, 2, v3
    v_cmp_gt_u32 vcc_lo, s25, v3
    wait_vcc
    s_and_saveexec_b32 s20, vcc_lo
    v_lshlrev_b32 v4, 2, v4
.endm

.macro next_groups again
    s_mov_b32 exec_lo, s20
    s_add_co_i32 s19, s19, 32
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s19, s25
    s_cbranch_scc1 \again
.endm

zrt_kernel name=moe_topk, buffers=4, constants=7, threads=32, vgprs=48, sgprs=40, lds=12288

    s_load_b256 s[4:11], s[0:1], 0x0                // logits, bias, ids, weights
    s_load_b128 s[12:15], s[0:1], 0x20              // E, k, renormalise, scale
    s_load_b96 s[24:26], s[0:1], 0x30               // softmax, groups, groups_used
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 4, v0                         // the lane's bytes in a block
    s_wait_kmcnt 0x0
    s_mul_i32 s16, ttmp9, s12
    s_mul_hi_u32 s17, ttmp9, s12
    s_lshl_b64 s[16:17], s[16:17], 2
    s_add_nc_u64 s[4:5], s[4:5], s[16:17]           // the token's logits
    s_mul_i32 s16, ttmp9, s13
    s_mul_hi_u32 s17, ttmp9, s13
    s_lshl_b64 s[16:17], s[16:17], 2
    s_add_nc_u64 s[8:9], s[8:9], s[16:17]
    s_add_nc_u64 s[10:11], s[10:11], s[16:17]
    s_add_co_i32 s18, s12, 127
    s_lshr_b32 s18, s18, 7                          // blocks

    // The largest logit. A lane past the end sees -infinity.
    v_mov_b32 v2, 0xff800000
    s_mov_b32 s19, 0
    s_wait_alu 0xfffe
    v_lshlrev_b32 v3, 2, v0                         // the lane's first expert in the block
    v_mov_b32 v4, v1                                // its bytes in the row
.Lmaximum:
    v_dual_mov_b32 v8, 0xff800000 :: v_dual_mov_b32 v9, 0xff800000
    v_dual_mov_b32 v10, 0xff800000 :: v_dual_mov_b32 v11, 0xff800000
    .irp j, 0, 1, 2, 3
    v_add_nc_u32 v5, \j, v3
    v_cmp_gt_u32 vcc_lo, s12, v5
    wait_vcc
    s_and_saveexec_b32 s20, vcc_lo
    global_load_b32 v[8+\j], v4, s[4:5] offset:4*\j
    s_mov_b32 exec_lo, s20
    .endr
    v_lshl_add_u32 v5, s19, 9, v1
    s_wait_loadcnt 0x0
    ds_store_b128 v5, v[8:11]                       // logits, for now
    v_maximum_f32 v8, v8, v9
    v_maximum_f32 v10, v10, v11
    v_maximum_f32 v8, v8, v10
    v_maximum_f32 v2, v2, v8
    v_add_nc_u32 v3, 0x80, v3
    v_add_nc_u32 v4, 0x200, v4
    s_add_co_i32 s19, s19, 1
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s19, s18
    s_cbranch_scc1 .Lmaximum
    s_cmp_eq_u32 s24, 0
    s_cbranch_scc1 .Lsigmoid
    f32_max_butterfly v2, v6

    // e = exp(logit - maximum), and their sum from +0 in four accumulators a lane.
    v_dual_mov_b32 v12, 0 :: v_dual_mov_b32 v13, 0
    v_dual_mov_b32 v14, 0 :: v_dual_mov_b32 v15, 0
    s_mov_b32 s19, 0
    s_wait_alu 0xfffe
    v_lshlrev_b32 v3, 2, v0
.Lexponentials:
    v_lshl_add_u32 v5, s19, 9, v1
    s_wait_dscnt 0x0
    ds_load_b128 v[8:11], v5
    s_wait_dscnt 0x0
    .irp j, 0, 1, 2, 3
    v_sub_f32 v[8+\j], v[8+\j], v2
    f32_exp v[8+\j], v[8+\j], v16, v17, v18
    v_add_nc_u32 v6, \j, v3
    v_cmp_gt_u32 vcc_lo, s12, v6
    wait_vcc
    v_cndmask_b32 v[8+\j], 0, v[8+\j], vcc_lo     // adding +0 past the end changes nothing
    v_add_f32 v[12+\j], v[12+\j], v[8+\j]
    .endr
    ds_store_b128 v5, v[8:11]
    v_add_nc_u32 v3, 0x80, v3
    s_add_co_i32 s19, s19, 1
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s19, s18
    s_cbranch_scc1 .Lexponentials
    f32_sum4 v7, v12, v13, v14, v15
    f32_butterfly v7, v6
    s_branch .Lgated

.Lsigmoid:
    s_mov_b32 s19, 0
.Lsigmoids:
    s_wait_alu 0xfffe
    v_lshl_add_u32 v5, s19, 9, v1
    s_wait_dscnt 0x0
    ds_load_b128 v[8:11], v5
    s_wait_dscnt 0x0
    .irp j, 0, 1, 2, 3
    f32_sigmoid v[8+\j], v[8+\j], v16, v17, v18, v19
    .endr
    ds_store_b128 v5, v[8:11]
    s_add_co_i32 s19, s19, 1
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s19, s18
    s_cbranch_scc1 .Lsigmoids

    // Probabilities, and the keys of probability + bias.
.Lgated:
    s_mov_b32 s19, 0
    s_wait_alu 0xfffe
    v_lshlrev_b32 v3, 2, v0
    v_mov_b32 v4, v1
    s_cmp_lg_u64 s[6:7], 0
    s_cselect_b32 s21, -1, 0                        // there is a bias
.Lprobabilities:
    v_lshl_add_u32 v5, s19, 9, v1
    s_wait_dscnt 0x0
    ds_load_b128 v[8:11], v5
    v_dual_mov_b32 v12, 0 :: v_dual_mov_b32 v13, 0
    v_dual_mov_b32 v14, 0 :: v_dual_mov_b32 v15, 0
    s_wait_dscnt 0x0
    .irp j, 0, 1, 2, 3
    s_cmp_eq_u32 s24, 0
    s_cbranch_scc1 .Lprobability\j
    f32_div v[8+\j], v[8+\j], v7, v16, v17, v18, v19, v20, v21
.Lprobability\j:
    v_add_nc_u32 v6, \j, v3
    v_cmp_gt_u32 vcc_lo, s12, v6
    wait_vcc
    v_bfrev_b32 v22, 1                              // what is no expert has the key of nothing
    s_and_saveexec_b32 s20, vcc_lo
    s_cmp_eq_u32 s21, 0
    s_cbranch_scc1 .Lno_bias\j
    global_load_b32 v[12+\j], v4, s[6:7] offset:4*\j
    s_wait_loadcnt 0x0
    v_add_f32 v[12+\j], v[8+\j], v[12+\j]
    s_branch .Lscore\j
.Lno_bias\j:
    v_mov_b32 v[12+\j], v[8+\j]
.Lscore\j:
    best_key v22, v[12+\j], v16, NAN_KEY
    s_mov_b32 exec_lo, s20
    v_mov_b32 v[12+\j], v22
    .endr
    ds_store_b128 v5, v[8:11]
    ds_store_b128 v5, v[12:15] offset:MOE_KEYS
    v_add_nc_u32 v3, 0x80, v3
    v_add_nc_u32 v4, 0x200, v4
    s_add_co_i32 s19, s19, 1
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s19, s18
    s_cbranch_scc1 .Lprobabilities

    s_cmp_le_u32 s25, 1
    s_cbranch_scc1 .Leligible

    // A group is worth the sum of its two best experts, or its only one; a NaN where it has one.
    s_mov_b32 s27, 0                                // experts of a group
    s_mov_b32 s28, s12
.Ldivide:
    s_sub_co_i32 s28, s28, s25
    s_add_co_i32 s27, s27, 1
    s_cmp_ge_u32 s28, s25
    s_cbranch_scc1 .Ldivide
    s_mov_b32 s19, 0                                // the first of 32 groups
.Lrank:
    group_lanes
    best_none v9, v8                                // the best
    v_mov_b32 v9, v8                                // and the second
    v_bfrev_b32 v10, -2                             // the least, 0x7fffffff
    s_mov_b32 s22, s27
.Lmember:
    ds_load_b32 v11, v4 offset:MOE_KEYS
    v_add_nc_u32 v4, 4, v4
    s_wait_dscnt 0x0
    v_min_i32 v12, v8, v11
    v_max_i32 v9, v9, v12
    v_max_i32 v8, v8, v11
    v_min_i32 v10, v10, v11
    s_sub_co_i32 s22, s22, 1
    s_cmp_lg_u32 s22, 0
    s_cbranch_scc1 .Lmember
    best_value v12, v8
    s_cmp_eq_u32 s27, 1
    s_cbranch_scc1 .Lonly
    best_value v13, v9
    v_add_f32 v12, v12, v13
.Lonly:
    best_key v11, v12, v16, NAN_KEY
    v_cmp_eq_u32 vcc_lo, NAN_KEY, v10
    wait_vcc
    v_cndmask_b32_e64 v11, v11, NAN_KEY, vcc_lo
    ds_store_b32 v5, v11 offset:MOE_GROUPS
    next_groups .Lrank

    s_mov_b32 s23, s26                              // groups to choose
.Lchoose_group:
    best_none v32, v33
    s_mov_b32 s19, 0
.Lscan_groups:
    v_bfrev_b32 v11, 1
    group_lanes
    ds_load_b32 v11, v5 offset:MOE_GROUPS
    s_wait_dscnt 0x0
    s_mov_b32 exec_lo, s20
    v_cmp_gt_i32 vcc_lo, v11, v33
    v_not_b32 v6, v3
    wait_vcc
    v_cndmask_b32 v32, v32, v6, vcc_lo
    v_cndmask_b32 v33, v33, v11, vcc_lo
    next_groups .Lscan_groups
    best_butterfly v[32:33], v32, v33, v[34:35], v34, v35
    v_not_b32 v32, v32
    v_lshlrev_b32 v5, 2, v32
    v_bfrev_b32 v37, 1
    s_mov_b32 exec_lo, 1
    ds_store_b32 v5, v37 offset:MOE_GROUPS          // taken
    s_mov_b32 exec_lo, -1
    s_sub_co_i32 s23, s23, 1
    s_cmp_lg_u32 s23, 0
    s_cbranch_scc1 .Lchoose_group

    // Experts of the other groups score -infinity.
    s_mov_b32 s19, 0
    s_wait_dscnt 0x0
.Lexclude:
    group_lanes
    ds_load_b32 v11, v5 offset:MOE_GROUPS
    v_mov_b32 v12, 0x807fffff
    s_mov_b32 s22, s27
    s_wait_dscnt 0x0
    v_cmpx_ne_u32 NOTHING, v11
    s_cbranch_execz .Lexcluded
.Lexclude_member:
    ds_store_b32 v4, v12 offset:MOE_KEYS
    v_add_nc_u32 v4, 4, v4
    s_sub_co_i32 s22, s22, 1
    s_cmp_lg_u32 s22, 0
    s_cbranch_scc1 .Lexclude_member
.Lexcluded:
    next_groups .Lexclude
.Leligible:

    // k times the best; choice r is kept as the dot over the choices has element r. v[24:27] weights, v[28:31] ids
    .irp v, 24, 25, 26, 27, 28, 29, 30, 31
    v_mov_b32 v\v, 0
    .endr
    v_lshlrev_b32 v3, 2, v0
    s_mov_b32 s22, 0                                // r
.Lchoose:
    best_none v32, v33
    s_mov_b32 s19, 0
    s_wait_alu 0xfffe
    v_lshlrev_b32 v4, 2, v0                         // the lane's first expert in the block
    s_wait_dscnt 0x0
.Lscan:
    v_lshl_add_u32 v5, s19, 9, v1
    ds_load_b128 v[8:11], v5 offset:MOE_KEYS
    s_wait_dscnt 0x0
    .irp j, 0, 1, 2, 3
    v_add_nc_u32 v6, \j, v4
    v_cmp_gt_i32 vcc_lo, v[8+\j], v33
    v_not_b32 v6, v6
    wait_vcc
    v_cndmask_b32 v32, v32, v6, vcc_lo
    v_cndmask_b32 v33, v33, v[8+\j], vcc_lo
    .endr
    v_add_nc_u32 v4, 0x80, v4
    s_add_co_i32 s19, s19, 1
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s19, s18
    s_cbranch_scc1 .Lscan
    best_butterfly v[32:33], v32, v33, v[34:35], v34, v35
    v_not_b32 v32, v32                              // the chosen expert, in every lane
    v_lshlrev_b32 v5, 2, v32                        // its bytes: block and lane are in order
    ds_load_b32 v36, v5
    v_bfrev_b32 v37, 1
    s_wait_dscnt 0x0
    v_cmp_eq_u32 vcc_lo, 0, v0
    wait_vcc
    s_and_saveexec_b32 s20, vcc_lo
    ds_store_b32 v5, v37 offset:MOE_KEYS            // taken
    s_mov_b32 exec_lo, s20
    .irp j, 0, 1, 2, 3
    v_add_nc_u32 v6, \j, v3
    v_cmp_eq_u32 vcc_lo, s22, v6
    wait_vcc
    v_cndmask_b32 v[24+\j], v[24+\j], v36, vcc_lo
    v_cndmask_b32 v[28+\j], v[28+\j], v32, vcc_lo
    .endr
    s_add_co_i32 s22, s22, 1
    s_wait_alu 0xfffe
    s_cmp_lt_u32 s22, s13
    s_cbranch_scc1 .Lchoose

    // Weights.
    s_cmp_eq_u32 s14, 0
    s_cbranch_scc1 .Lscale
    f32_sum4 v7, v24, v25, v26, v27, v6
    f32_butterfly v7, v6
    v_maximum_f32 v7, 0x38800000, v7                // 2^-14
    .irp v, 24, 25, 26, 27
    f32_div v\v, v\v, v7, v16, v17, v18, v19, v20, v21
    .endr
.Lscale:
    .irp v, 24, 25, 26, 27
    v_mul_f32 v\v, s15, v\v                         // times 1 is nothing
    .endr
    .irp j, 0, 1, 2, 3
    v_add_nc_u32 v6, \j, v3
    v_cmp_gt_u32 vcc_lo, s13, v6
    wait_vcc
    s_and_saveexec_b32 s20, vcc_lo
    global_store_b32 v1, v[24+\j], s[10:11] offset:4*\j
    global_store_b32 v1, v[28+\j], s[8:9] offset:4*\j
    s_mov_b32 exec_lo, s20
    .endr
    s_endpgm
zrt_end
