// SLICE: y[t][g][0..size) = x[t][g][offset..offset + size) of groups of `group` elements, f32.
// Buffers: x, y. Constants: group, offset, size, columns of x, columns of y. Grid: groups, tokens, size / 512
// rounded up; a wave copies 512 elements.
.include "zrt.inc"
.include "copy.inc"

zrt_kernel name=slice, buffers=2, constants=5, threads=32, vgprs=24, sgprs=26
    s_clause 2
    s_load_b128 s[4:7], s[0:1], 0
    s_load_b128 s[8:11], s[0:1], 16
    s_load_b32 s12, s[0:1], 32
    s_and_b32 s13, ttmp7, 0xffff                    // token
    s_lshr_b32 s14, ttmp7, 16
    s_lshl_b32 s14, s14, 9                          // first element of the group's slice
    s_wait_kmcnt 0
    s_sub_co_u32 s15, s10, s14                      // elements left
    s_mul_i32 s16, ttmp9, s8
    s_add_co_u32 s16, s16, s9
    s_add_co_u32 s16, s16, s14                      // column of x
    s_mul_i32 s17, ttmp9, s10
    s_add_co_u32 s17, s17, s14                      // column of y
    s_mul_hi_u32 s19, s13, s11
    s_mul_i32 s18, s13, s11
    s_mul_hi_u32 s21, s13, s12
    s_mul_i32 s20, s13, s12
    s_mov_b32 s22, s16
    s_mov_b32 s23, 0
    s_add_nc_u64 s[18:19], s[18:19], s[22:23]
    s_lshl_b64 s[18:19], s[18:19], 2
    s_add_nc_u64 s[4:5], s[4:5], s[18:19]
    s_mov_b32 s22, s17
    s_add_nc_u64 s[20:21], s[20:21], s[22:23]
    s_lshl_b64 s[20:21], s[20:21], 2
    s_add_nc_u64 s[6:7], s[6:7], s[20:21]
    s_cmp_lt_i32 s15, 512
    s_cbranch_scc1 .Ltail
    v_lshlrev_b32 v1, 4, v0
    copy_512_columns
    s_endpgm
.Ltail:
    v_lshlrev_b32 v1, 2, v0
.Lloop:
    v_cmp_gt_i32 vcc_lo, s15, v0
    s_wait_alu 0xfffd
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lend
    global_load_b32 v2, v1, s[4:5]
    s_wait_loadcnt 0
    global_store_b32 v1, v2, s[6:7]
    v_add_nc_u32 v1, 128, v1
    v_add_nc_u32 v0, 32, v0
    s_branch .Lloop
.Lend:
    s_endpgm
zrt_end
