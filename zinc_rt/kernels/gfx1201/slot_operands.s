// SAMPLE_SLOTS, after argmax: what SAMPLE reads, from the record of each row's slot. A row whose largest logit is NaN
// or infinite has no candidate: its token is -1, and temperature 0 keeps it so. One wave a row.
//
// buffers: logits f32[L][V]; token i32[L] of argmax; row_slot i32[L]; record i32[slots][64]; and written:
//     seed i32[L][2]; sampling f32[L][4]; choice i32[L]
// constants: V
.include "zrt.inc"
.include "sample.inc"
.include "slots.inc"
zrt_kernel name=slot_operands, buffers=7, constants=1, threads=32, vgprs=16, sgprs=32

    s_load_b256 s[4:11], s[0:1], 0x0                // logits, token, row_slot, record
    s_load_b128 s[12:15], s[0:1], 0x20              // seed, sampling
    s_load_b96 s[16:18], s[0:1], 0x30               // choice, V
    s_lshl_b32 s19, ttmp9, 2
    s_mov_b32 exec_lo, 1
    s_wait_kmcnt 0x0
    s_load_b32 s20, s[6:7], s19                     // the likeliest token
    s_load_b32 s22, s[8:9], s19                     // the slot
    s_lshl_b32 s18, s18, 2
    sample_row 4, s18, 24
    s_wait_kmcnt 0x0
    s_lshl_b32 s20, s20, 2
    s_load_b32 s21, s[4:5], s20                     // its logit
    s_mov_b32 s23, 0
    s_lshl_b64 s[22:23], s[22:23], 8
    s_add_nc_u64 s[10:11], s[10:11], s[22:23]
    s_load_b128 s[24:27], s[10:11], 4*SLOT_TEMPERATURE // temperature, top_k, top_p, min_p
    s_load_b96 s[28:30], s[10:11], 4*SLOT_SEED      // seed, choice
    v_mov_b32 v0, s19
    s_wait_kmcnt 0x0
    s_and_b32 s21, s21, 0x7f800000
    s_cmp_eq_u32 s21, 0x7f800000
    s_cbranch_scc0 .Lstore
    s_mov_b32 s24, 0
    v_mov_b32 v1, -1
    global_store_b32 v0, v1, s[6:7]
.Lstore:
    v_mov_b32 v2, s28
    v_mov_b32 v3, s29
    v_mov_b32 v4, s24
    v_mov_b32 v5, s25
    v_mov_b32 v6, s26
    v_mov_b32 v7, s27
    v_mov_b32 v8, s30
    v_lshlrev_b32 v9, 1, v0
    v_lshlrev_b32 v10, 2, v0
    global_store_b64 v9, v[2:3], s[12:13]
    global_store_b128 v10, v[4:7], s[14:15]
    global_store_b32 v0, v8, s[16:17]
    s_endpgm
zrt_end
