// KV_WRITE_BATCHED: each token's k and v into their row of the paged cache, of kv.inc's types.
// Buffers: k, kv_k, v, kv_v, position, slot, page_table. Constants: columns of k, columns of v, log2 of a page's
// tokens, pages of a slot. Grid: 2 (k, v), tokens, the longer row / 512 rounded up.
.include "zrt.inc"
.include "arith.inc"
.include "copy.inc"
.include "quantise.inc"
.include "kv.inc"

.macro zrt_of_kv suffix
zrt_kernel name=kv_write\suffix, buffers=7, constants=4, threads=32, vgprs=24+28*((KV+1)/2), sgprs=36
    s_clause 3
    s_load_b256 s[4:11], s[0:1], 0
    s_load_b128 s[12:15], s[0:1], 32
    s_load_b64 s[16:17], s[0:1], 48
    s_load_b128 s[20:23], s[0:1], 56
    s_and_b32 s2, ttmp7, 0xffff
    s_lshl_b32 s3, s2, 2
    s_wait_kmcnt 0
    s_load_b32 s24, s[12:13], s3                    // position
    s_load_b32 s25, s[14:15], s3                    // slot
    s_cmp_eq_u32 ttmp9, 0
    s_cselect_b64 s[4:5], s[4:5], s[8:9]            // from
    s_cselect_b64 s[6:7], s[6:7], s[10:11]          // to
    s_cselect_b32 s20, s20, s21                     // columns
    s_lshr_b32 s26, ttmp7, 16
    s_lshl_b32 s26, s26, 9                          // first column
    s_sub_co_i32 s8, s20, s26                       // columns left
    s_cmp_le_i32 s8, 0
    s_cbranch_scc1 .Lend
    s_mov_b32 s27, 0
    s_lshl_b64 s[26:27], s[26:27], 2
    s_mul_hi_u32 s3, s2, s20
    s_mul_i32 s2, s2, s20
    s_lshl_b64 s[2:3], s[2:3], 2
    s_add_nc_u64 s[4:5], s[4:5], s[2:3]
    s_add_nc_u64 s[4:5], s[4:5], s[26:27]
    .if KV != KV_F32
    s_lshr_b32 s26, s26, 2
    kv_bytes s26, s26
    .endif
    s_add_nc_u64 s[6:7], s[6:7], s[26:27]
    s_wait_kmcnt 0
    s_mul_i32 s25, s25, s23
    s_lshr_b32 s28, s24, s22                        // page of the slot
    s_add_co_u32 s28, s25, s28
    s_mov_b32 s29, 0
    s_lshl_b64 s[28:29], s[28:29], 2
    s_add_nc_u64 s[28:29], s[16:17], s[28:29]
    s_load_b32 s30, s[28:29], 0
    s_bfm_b32 s31, s22, 0
    s_and_b32 s31, s24, s31
    s_wait_kmcnt 0
    s_lshl_b32 s30, s30, s22
    s_add_co_u32 s30, s30, s31                      // row of the cache
    kv_row 32, s30, s20
    s_add_nc_u64 s[6:7], s[6:7], s[32:33]
    .if KV != KV_F32
    s_min_i32 s8, s8, 512
    kv_store_columns s8, 34
    .else
    s_cmp_lt_i32 s8, 512
    s_cbranch_scc1 .Ltail
    v_lshlrev_b32 v1, 4, v0
    copy_512_columns
    s_endpgm
.Ltail:
    copy_columns s8
    .endif
.Lend:
    s_endpgm
zrt_end
.endm
