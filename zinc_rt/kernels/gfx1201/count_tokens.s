// SAMPLE_SLOTS, last: a token that was drawn for a request with penalties, and without backpressure, counts in its row.
// One wave a row of logits.
//
// buffers: token i32[L], -1 for none; row_slot i32[L]; record i32[slots][64]; counts i32[P][V]
// constants: V
.include "zrt.inc"
.include "slots.inc"
zrt_kernel name=count_tokens, buffers=4, constants=1, threads=32, vgprs=8, sgprs=24

    s_load_b256 s[4:11], s[0:1], 0x0                // token, row_slot, record, counts
    s_load_b32 s12, s[0:1], 0x20                    // V
    s_lshl_b32 s13, ttmp9, 2
    s_wait_kmcnt 0x0
    s_load_b32 s14, s[4:5], s13                     // the token
    s_load_b32 s16, s[6:7], s13                     // the slot
    s_mov_b32 s17, 0
    s_wait_kmcnt 0x0
    s_cmp_lt_i32 s14, 0
    s_cbranch_scc1 .Lend
    s_lshl_b64 s[16:17], s[16:17], 8
    s_add_nc_u64 s[8:9], s[8:9], s[16:17]
    s_load_b32 s15, s[8:9], 4*SLOT_FLAGS
    s_load_b32 s16, s[8:9], 4*SLOT_PENALTY_ROW
    s_lshl_b32 s12, s12, 2
    s_wait_kmcnt 0x0
    s_and_b32 s15, s15, SLOT_FLAG_PENALTIES|SLOT_FLAG_BACKPRESSURE
    s_cmp_lg_u32 s15, SLOT_FLAG_PENALTIES
    s_cbranch_scc1 .Lend
    s_mul_hi_u32 s17, s16, s12
    s_mul_i32 s16, s16, s12
    s_add_nc_u64 s[10:11], s[10:11], s[16:17]
    s_lshl_b32 s14, s14, 2
    v_mov_b32 v0, s14
    v_mov_b32 v1, 1
    s_mov_b32 exec_lo, 1
    global_atomic_add_u32 v0, v1, s[10:11] scope:SCOPE_DEV
.Lend:
    s_endpgm
zrt_end
