// FLASH_ATTN, and MLA_FLASH_ATTN before v_b, of any widths and over pages of any power of two. A workgroup of eight waves
// is one query and one of its heads. Wave g makes the scores of group g of each chunk key after key, a lane four
// neighbours of 128 elements; a thread then takes one dim of the values through all eight groups. Of values longer than
// 256 dims that is done again for every 256, scores included.
//
// Keys and values are of kv.inc's types. A key is a row of kv_k and behind it, where `pe` is not 0, one of kv_pe, of one kv head.
//
// buffers: q; kv_k; kv_pe or 0; kv_v; position i32[T]; slot i32[T]; page table i32[slots][pages]; out; sinks f32[heads] or 0
// constants: query heads of a kv head; kv heads; elements of a key in kv_k; pe; value_dim; scale f32; window or 0; log2 of
//            a page's tokens; pages of a slot; bound of the scores or 0. Grid: query heads of a kv head, tokens, kv heads
.include "zrt.inc"
.include "arith.inc"
.include "any_width.inc"
.include "kv.inc"
.set SUM, 8                                         // the lane's accumulators of a score
.set Q, 12
.set K, 16
.set T, 20                                          // six temporaries
.set V, 26                                          // eight keys' element of the thread's dim
.set P, 34                                          // and their p
.set O, 42                                          // the groups' sums of p * v
.set L, 50                                          // and of p
.set RUN, 58                                        // m, l, o of the chunks so far
.set DIM, 61                                        // the thread's
.set KEY_AT, 62                                     // bytes before the lane's elements of a key
.set SCALE, 63                                      // d of them, of q8_0
.set SCALE_AT, 64
.set SCALES, 66                                     // d of eight keys' element of the thread's dim
.set LDS_M, 0                                       // maxima of the eight groups
.set LDS_P, 64                                      // p of 256 keys

// mask = which of the 32 keys from `first` on are visible.
.macro visible_keys mask, first
    s_sub_co_i32 s50, s31, \first
    s_max_i32 s50, s50, 0
    s_sub_co_i32 s51, s30, \first
    s_min_i32 s51, s51, 31
    s_sub_co_i32 s51, s51, s50
    s_add_co_i32 s51, s51, 1
    s_bfm_b64 s[52:53], s51, s50
    s_cmp_le_i32 s51, 0
    s_cselect_b32 \mask, 0, s52
.endm

// dst = the page of a key; beyond the last visible one that key's own.
.macro load_page dst, key
    s_min_i32 s50, \key, s30
    s_lshr_b32 s50, s50, s27
    s_lshl_b32 s50, s50, 2
    s_load_b32 \dst, s[16:17], s50 offset:0x0
.endm

// s50 = the row of a key in the caches.
.macro key_row key, page
    s_lshl_b32 s51, \page, s27
    s_and_b32 s50, \key, s42
    s_add_co_u32 s50, s50, s51
.endm

// s[to:to + 1] = base + row s50 of so many bytes.
.macro row_address to, base, bytes
    s_mul_hi_u32 s[\to + 1], s50, \bytes
    s_mul_i32 s[\to], s50, \bytes
    s_add_nc_u64 s[\to:\to+1], s[\to:\to+1], s[\base:\base+1]
.endm

.macro key_load base                                // K of the lanes whose elements s[64:67] has
    .if KV == KV_F32
    elements_load K, 4, \base, 64
    .else
    .irp e, 0, 1, 2, 3
    s_mov_b32 exec_lo, s[64 + \e]
    .if KV == KV_F16
    global_load_u16 v[K + \e], v[KEY_AT], s[\base:\base + 1] offset:2*\e
    .else
    global_load_i8 v[K + \e], v[KEY_AT], s[\base:\base + 1] offset:2+\e
    .endif
    .endr
    .if KV == KV_Q8_0
    global_load_u16 v[SCALE], v[SCALE_AT], s[\base:\base + 1]
    .endif
    s_mov_b32 exec_lo, -1
    .endif
.endm

.macro group_barrier
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
.endm

.macro tree8 first                                  // v[first] = ((0+1)+(2+3))+((4+5)+(6+7)) of v[first...]
    .irp pair, 0, 2, 4, 6
    v_add_f32 v[\first + \pair], v[\first + \pair], v[\first + \pair + 1]
    .endr
    v_add_f32 v[\first], v[\first], v[\first + 2]
    v_add_f32 v[\first + 4], v[\first + 4], v[\first + 6]
    v_add_f32 v[\first], v[\first], v[\first + 4]
.endm

.macro zrt_of_kv suffix
zrt_kernel name=flash_attn_any\suffix, buffers=9, constants=10, threads=256, vgprs=64+10*(KV/2), sgprs=88, lds=1088
    s_load_b512 s[4:19], s[0:1], 0x0                // q, kv_k, kv_pe, kv_v, position, slot, page table, out
    s_load_b64 s[68:69], s[0:1], 0x40               // sinks
    s_load_b256 s[20:27], s[0:1], 0x48              // group, kv heads, kv_k's elements, pe, value_dim, scale, window, log2
    s_load_b64 s[28:29], s[0:1], 0x68               // pages, bound of the scores
    s_and_b32 s2, ttmp7, 0xffff                     // the token
    s_lshr_b32 s3, ttmp7, 16                        // the kv head
    s_lshl_b32 s50, s2, 2
    s_wait_kmcnt 0x0
    s_load_b32 s30, s[12:13], s50 offset:0x0        // position: the last visible key
    s_load_b32 s31, s[14:15], s50 offset:0x0        // slot
    s_add_co_u32 s44, s22, s23                      // elements of a key
    s_mul_i32 s36, s21, s22
    kv_bytes s36, s36                               // bytes of a row of kv_k
    kv_bytes s38, s23                               // of kv_pe
    s_mul_i32 s40, s21, s24
    kv_bytes s40, s40                               // of kv_v
    s_mov_b32 s53, 0
    s_mul_i32 s52, s3, s22
    kv_bytes s52, s52
    s_add_nc_u64 s[6:7], s[6:7], s[52:53]           // this head's keys
    kv_bytes s52, s22
    s_sub_nc_u64 s[8:9], s[8:9], s[52:53]           // pe, as if behind the rest
    s_mul_i32 s52, s3, s24
    kv_bytes s52, s52
    s_add_nc_u64 s[10:11], s[10:11], s[52:53]       // and values
    s_mul_i32 s50, s20, s21
    s_mul_i32 s50, s50, s2
    s_mul_i32 s51, s3, s20
    s_add_co_u32 s50, s50, s51
    s_add_co_u32 s50, s50, ttmp9                    // token * heads + head
    s_mul_hi_u32 s53, s50, s44
    s_mul_i32 s52, s50, s44
    s_lshl_b64 s[52:53], s[52:53], 2
    s_add_nc_u64 s[4:5], s[4:5], s[52:53]
    s_mul_hi_u32 s53, s50, s24
    s_mul_i32 s52, s50, s24
    s_lshl_b64 s[52:53], s[52:53], 2
    s_add_nc_u64 s[18:19], s[18:19], s[52:53]
    s_cmp_eq_u64 s[68:69], 0
    s_cbranch_scc1 .Lno_sink
    s_mul_i32 s71, s3, s20
    s_add_co_u32 s71, s71, ttmp9
    s_lshl_b32 s71, s71, 2
    s_load_b32 s71, s[68:69], s71 offset:0x0
    s_wait_kmcnt 0x0
    s_mov_b32 s68, s71                              // m before the first chunk
    s_mov_b32 s69, 0
    s_branch .Lsunk
.Lno_sink:
    s_mov_b32 s68, 0                                // with l = 1, o = 0 a query that sees no key gives 0
    s_mov_b32 s69, 1
.Lsunk:
    s_bfe_u32 s34, ttmp8, 0x50019                   // wave g
    s_lshl_b32 s84, s34, 2                          // where its m lies
    s_lshl_b32 s86, s34, 7
    s_add_co_u32 s86, s86, LDS_P                    // and its p
    s_bfm_b32 s42, s27, 0                           // position -> place in the page
    v_and_b32 v[DIM], 0xff, v0
    s_sub_co_u32 s70, s24, 1                        // the last dim
    v_and_b32 v1, 31, v0
    v_lshlrev_b32 v2, 4, v1
    v_lshl_add_u32 v1, v1, 2, s86
    s_wait_kmcnt 0x0
    s_mul_i32 s52, s31, s28
    s_mov_b32 s53, 0
    s_lshl_b64 s[52:53], s[52:53], 2
    s_add_nc_u64 s[16:17], s[16:17], s[52:53]       // the slot's pages
    s_sub_co_i32 s31, s30, s26
    s_add_co_i32 s31, s31, 1
    s_max_i32 s31, s31, 0
    s_cmp_eq_u32 s26, 0
    s_cselect_b32 s31, 0, s31                       // the first visible key
    s_mov_b32 s43, 0                                // dims before
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    v_mov_b32 v[O + \i], 0
    v_mov_b32 v[L + \i], 0
    .endr

.Ldims:
    v_mov_b32 v[RUN], s68                           // m
    v_mov_b32 v[RUN + 1], 1.0                       // l
    v_mov_b32 v[RUN + 2], 0
    s_mov_b32 s35, s69                              // no chunk yet
    s_and_b32 s33, s31, 0xffffff00                  // the chunk's first key
    s_cmp_gt_i32 s31, s30
    s_cbranch_scc1 .Ldivide

.Lchunk:
    s_lshl_b32 s45, s34, 5
    s_add_co_u32 s45, s45, s33                      // the group's first key
    visible_keys s39, s45
    v_mov_b32 v7, 0xff800000                        // the lane's score
    s_mov_b32 s46, 0
.Lkey:
    s_bitcmp1_b32 s39, s46
    s_cbranch_scc0 .Lscored
    s_add_co_u32 s47, s45, s46
    load_page s48, s47
    s_wait_kmcnt 0x0
    key_row s47, s48
    row_address 52, 6, s36
    row_address 54, 8, s38
    v_mov_b32 v4, v2
    .if KV != KV_F32
    v_and_b32 v[T], 31, v0
    kv_lane_bytes KEY_AT, v[T], v2
    .if KV == KV_Q8_0
    v_mov_b32 v[SCALE_AT], 0
    kv_lane_block SCALE_AT, v[T]
    .endif
    .endif
    .irp e, 0, 1, 2, 3
    v_mov_b32 v[SUM + \e], 0
    .endr
    s_mov_b32 s48, s22
    s_mov_b32 s49, s44
.Lelements:
    element_masks 60, s49, 56
    element_masks 64, s48, 56
    elements_load Q, 4, 4, 60
    key_load 52
    s_wait_loadcnt 0x0
    s_cmp_eq_u32 s23, 0
    s_cbranch_scc1 .Lloaded
    .irp e, 0, 1, 2, 3
    s_and_not1_b32 s[64 + \e], s[60 + \e], s[64 + \e]
    .endr
    key_load 54
    s_wait_loadcnt 0x0
.Lloaded:
    .irp e, 0, 1, 2, 3
    s_mov_b32 exec_lo, s[60 + \e]
    .if KV == KV_F16
    v_cvt_f32_f16 v[K + \e], v[K + \e]
    .elseif KV == KV_Q8_0
    v_cvt_f32_i32 v[K + \e], v[K + \e]
    .if \e == 0
    v_cvt_f32_f16 v[SCALE], v[SCALE]
    .endif
    v_mul_f32 v[K + \e], v[K + \e], v[SCALE]
    .endif
    v_mul_f32 v[T], v[Q + \e], v[K + \e]
    v_add_f32 v[SUM + \e], v[SUM + \e], v[T]
    .endr
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v4, 0x200, v4
    .if KV != KV_F32
    v_add_nc_u32 v[KEY_AT], KV_128, v[KEY_AT]
    .endif
    .if KV == KV_Q8_0
    v_add_nc_u32 v[SCALE_AT], KV_128, v[SCALE_AT]
    .endif
    s_sub_co_i32 s48, s48, 128
    s_sub_co_i32 s49, s49, 128
    s_cmp_gt_i32 s49, 0
    s_cbranch_scc1 .Lelements
    f32_sum4 v[T], v[SUM], v[SUM + 1], v[SUM + 2], v[SUM + 3]
    f32_butterfly v[T], v[T + 1]
    s_lshl_b32 exec_lo, 1, s46
    v_mul_f32 v7, s25, v[T]
    s_mov_b32 exec_lo, -1
.Lscored:
    s_add_co_u32 s46, s46, 1
    s_cmp_lt_u32 s46, 32
    s_cbranch_scc1 .Lkey

    s_cmp_eq_u32 s29, 0
    s_cbranch_scc1 .Lbounded
    s_mov_b32 exec_lo, s39
    f32_div v5, v7, s29, v[T], v[T + 1], v[T + 2], v[T + 3], v[T + 4], v[T + 5]
    f32_tanh v5, v5, v[T], v[T + 1], v[T + 2], v[T + 3]
    v_mul_f32 v7, s29, v5
    s_mov_b32 exec_lo, -1
.Lbounded:
    v_mov_b32 v6, v7
    f32_max_butterfly v6, v5
    v_mov_b32 v5, s84
    s_mov_b32 exec_lo, 1
    ds_store_b32 v5, v6 offset:LDS_M
    s_mov_b32 exec_lo, -1
    v_mov_b32 v3, 0
    group_barrier
    ds_load_b128 v[P:P + 3], v3 offset:LDS_M
    ds_load_b128 v[P + 4:P + 7], v3 offset:LDS_M + 16
    s_wait_dscnt 0x0
    .irp i, 1, 2, 3, 4, 5, 6, 7
    v_maximum_f32 v[P], v[P], v[P + \i]
    .endr
    v_mov_b32 v6, v[P]                              // m of the chunk
    v_mov_b32 v5, 0
    s_mov_b32 exec_lo, s39
    s_cbranch_execz .Lhidden
    v_sub_f32 v5, v7, v6
    f32_exp v5, v5, v[T], v[T + 1], v[T + 2]
.Lhidden:
    s_mov_b32 exec_lo, -1
    ds_store_b32 v1, v5
    group_barrier

    v_min_u32 v5, s70, v[DIM]                       // threads beyond the last dim repeat it
    .if KV == KV_Q8_0
    v_lshrrev_b32 v[SCALE_AT], 5, v5
    v_mul_u32_u24 v[SCALE_AT], KV_BLOCK, v[SCALE_AT]
    v_and_b32 v5, 31, v5
    v_add_nc_u32 v5, v[SCALE_AT], v5
    .else
    v_lshlrev_b32 v5, 2 - KV, v5
    .endif
    v_mov_b32 v3, LDS_P
    s_mov_b32 s45, s33                              // a group's first key
    s_mov_b32 s47, 8
.Lgroup:
    visible_keys s39, s45
    .irp i, 0, 1, 2, 3, 4, 5, 6
    v_mov_b32 v[O + \i], v[O + \i + 1]
    v_mov_b32 v[L + \i], v[L + \i + 1]
    .endr
    v_mov_b32 v[O + 7], 0
    v_mov_b32 v[L + 7], 0
    s_mov_b32 s46, 0
.Lvalues:
    s_lshr_b32 s48, s39, s46
    s_and_b32 s48, s48, 0xff
    s_cmp_eq_u32 s48, 0
    s_cbranch_scc1 .Lsummed
    ds_load_b128 v[P:P + 3], v3
    ds_load_b128 v[P + 4:P + 7], v3 offset:16
    s_add_co_u32 s49, s45, s46
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    s_add_co_u32 s51, s49, \i
    load_page s[72 + \i], s51
    v_mov_b32 v[V + \i], 0
    .if KV == KV_Q8_0
    v_mov_b32 v[SCALES + \i], 0
    .endif
    .endr
    s_wait_kmcnt 0x0
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    s_bitcmp1_b32 s48, \i
    s_cbranch_scc0 .Lunseen\@_\i
    s_add_co_u32 s82, s49, \i
    key_row s82, s[72 + \i]
    row_address 52, 10, s40
    .if KV == KV_F32
    global_load_b32 v[V + \i], v5, s[52:53]
    .elseif KV == KV_F16
    global_load_u16 v[V + \i], v5, s[52:53]
    .else
    global_load_i8 v[V + \i], v5, s[52:53] offset:2
    global_load_u16 v[SCALES + \i], v[SCALE_AT], s[52:53]
    .endif
.Lunseen\@_\i:
    .endr
    s_wait_loadcnt 0x0
    s_wait_dscnt 0x0
    .irp i, 0, 1, 2, 3, 4, 5, 6, 7
    .if KV == KV_F16
    v_cvt_f32_f16 v[V + \i], v[V + \i]
    .elseif KV == KV_Q8_0
    v_cvt_f32_i32 v[V + \i], v[V + \i]
    v_cvt_f32_f16 v[SCALES + \i], v[SCALES + \i]
    v_mul_f32 v[V + \i], v[V + \i], v[SCALES + \i]
    .endif
    v_add_f32 v[L + 7], v[L + 7], v[P + \i]
    v_mul_f32 v[T], v[P + \i], v[V + \i]
    v_add_f32 v[O + 7], v[O + 7], v[T]
    .endr
.Lsummed:
    v_add_nc_u32 v3, 32, v3
    s_add_co_u32 s46, s46, 8
    s_cmp_lt_u32 s46, 32
    s_cbranch_scc1 .Lvalues
    s_add_co_u32 s45, s45, 32
    s_sub_co_u32 s47, s47, 1
    s_cmp_lg_u32 s47, 0
    s_cbranch_scc1 .Lgroup
    tree8 O
    tree8 L
    s_cmp_lg_u32 s35, 0
    s_cbranch_scc0 .Lmerge
    s_mov_b32 s35, 0
    v_mov_b32 v[RUN], v6
    v_mov_b32 v[RUN + 1], v[L]
    v_mov_b32 v[RUN + 2], v[O]
    s_branch .Lmerged
.Lmerge:
    v_maximum_f32 v7, v[RUN], v6                    // m'
    v_sub_f32 v[RUN], v[RUN], v7
    v_sub_f32 v6, v6, v7
    f32_exp v[RUN], v[RUN], v[T], v[T + 1], v[T + 2]
    f32_exp v6, v6, v[T], v[T + 1], v[T + 2]
    v_mul_f32 v[RUN + 1], v[RUN + 1], v[RUN]
    v_mul_f32 v[L], v[L], v6
    v_add_f32 v[RUN + 1], v[RUN + 1], v[L]
    v_mul_f32 v[RUN + 2], v[RUN + 2], v[RUN]
    v_mul_f32 v[O], v[O], v6
    v_add_f32 v[RUN + 2], v[RUN + 2], v[O]
    v_mov_b32 v[RUN], v7
.Lmerged:
    s_add_co_u32 s33, s33, 0x100
    s_cmp_le_i32 s33, s30
    s_cbranch_scc1 .Lchunk

.Ldivide:
    v_cmp_gt_u32 vcc_lo, s24, v[DIM]
    v_lshlrev_b32 v5, 2, v[DIM]
    wait_vcc
    s_mov_b32 exec_lo, vcc_lo
    s_cbranch_execz .Lstored
    f32_div v7, v[RUN + 2], v[RUN + 1], v[T], v[T + 1], v[T + 2], v[T + 3], v[T + 4], v[T + 5]
    global_store_b32 v5, v7, s[18:19]
.Lstored:
    s_mov_b32 exec_lo, -1
    v_add_nc_u32 v[DIM], 0x100, v[DIM]
    s_add_co_u32 s43, s43, 0x100
    s_cmp_lt_u32 s43, s24
    s_cbranch_scc1 .Ldims
    s_endpgm
zrt_end
.endm
