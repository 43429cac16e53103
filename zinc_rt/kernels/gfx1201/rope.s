// ROPE: in each head the dims [offset, offset + 2R) turn by rows position[t] of cos and sin (ctx, R), f32.
// Buffers: x, y, position, cos, sin. Constants: head_dim, offset, R, bytes from pair to pair, bytes from the first
// of a pair to the second, columns of a row. Grid: heads, tokens.
.include "zrt.inc"

zrt_kernel name=rope, buffers=5, constants=6, threads=32, vgprs=16, sgprs=30
    s_clause 3
    s_load_b256 s[4:11], s[0:1], 0
    s_load_b64 s[12:13], s[0:1], 32
    s_load_b128 s[16:19], s[0:1], 40
    s_load_b64 s[20:21], s[0:1], 56
    s_and_b32 s2, ttmp7, 0xffff
    s_lshl_b32 s14, s2, 2
    s_wait_kmcnt 0
    s_load_b32 s14, s[8:9], s14                     // position
    s_mul_hi_u32 s3, s2, s21
    s_mul_i32 s2, s2, s21
    s_mul_i32 s22, ttmp9, s16
    s_mov_b32 s23, 0
    s_add_nc_u64 s[2:3], s[2:3], s[22:23]
    s_lshl_b64 s[2:3], s[2:3], 2
    s_add_nc_u64 s[4:5], s[4:5], s[2:3]             // the head's x
    s_add_nc_u64 s[6:7], s[6:7], s[2:3]             // and y
    s_lshl_b32 s22, s17, 2
    s_add_nc_u64 s[24:25], s[4:5], s[22:23]         // the first turning dim
    s_add_nc_u64 s[26:27], s[6:7], s[22:23]
    s_wait_kmcnt 0
    s_mul_hi_u32 s15, s14, s18
    s_mul_i32 s14, s14, s18
    s_lshl_b64 s[14:15], s[14:15], 2
    s_add_nc_u64 s[10:11], s[10:11], s[14:15]
    s_add_nc_u64 s[12:13], s[12:13], s[14:15]
    v_mov_b32 v1, v0
.Lpairs:
    v_cmp_gt_u32 vcc_lo, s18, v1
    s_wait_alu 0xfffd
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lothers
    v_lshlrev_b32 v2, 2, v1
    v_mul_lo_u32 v3, v1, s19                        // first of the pair
    v_add_nc_u32 v4, s20, v3                        // second
    s_clause 3
    global_load_b32 v5, v3, s[24:25]
    global_load_b32 v6, v4, s[24:25]
    global_load_b32 v7, v2, s[10:11]
    global_load_b32 v8, v2, s[12:13]
    v_add_nc_u32 v1, 32, v1
    s_wait_loadcnt 0
    v_mul_f32 v9, v5, v7
    v_mul_f32 v10, v6, v8
    v_sub_f32 v9, v9, v10
    v_mul_f32 v5, v5, v8
    v_mul_f32 v6, v6, v7
    v_add_f32 v5, v5, v6
    global_store_b32 v3, v9, s[26:27]
    global_store_b32 v4, v5, s[26:27]
    s_branch .Lpairs
.Lothers:                                           // dims before offset and from offset + 2R on are copied
    s_lshl_b32 s28, s18, 1
    s_mov_b32 exec_lo, -1
    s_sub_co_u32 s15, s16, s28                      // how many
    s_cmp_eq_u32 s15, 0
    s_cbranch_scc1 .Lend
    v_mov_b32 v1, v0
    v_mov_b32 v4, s28
.Lcopy:
    v_cmp_gt_u32 vcc_lo, s15, v1
    s_wait_alu 0xfffd
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lend
    v_cmp_le_u32 vcc_lo, s17, v1
    s_wait_alu 0xfffd
    v_cndmask_b32 v2, 0, v4, vcc_lo                 // behind the turning dims: skip them
    v_add_lshl_u32 v2, v1, v2, 2
    global_load_b32 v3, v2, s[4:5]
    v_add_nc_u32 v1, 32, v1
    s_wait_loadcnt 0
    global_store_b32 v2, v3, s[6:7]
    s_branch .Lcopy
.Lend:
    s_endpgm
zrt_end
