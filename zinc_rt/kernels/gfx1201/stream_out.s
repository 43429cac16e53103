// STREAM_OUT: (slot, token) of each row into the host's ring, in order; the cursor counts entries ever written.
// One lane writes; the rows are few.
//
// buffers: token i32[L]; out_slot i32[L]; ring i32[capacity][2]; cursor i32[1]; counts i32[3]
// constants: capacity
.include "zrt.inc"
zrt_kernel name=stream_out, buffers=5, constants=1, threads=32, vgprs=16, sgprs=40

    s_load_b256 s[4:11], s[0:1], 0x0                // token, out_slot, ring, cursor
    s_load_b96 s[12:14], s[0:1], 0x20               // counts, capacity
    v_and_b32 v0, 0x3ff, v0
    s_wait_kmcnt 0x0
    s_load_b32 s15, s[12:13], 0x8                   // rows
    s_load_b32 s16, s[10:11], 0x0                   // the cursor
    v_mov_b32 v1, 0
    s_mov_b32 exec_lo, 1
    s_wait_kmcnt 0x0
    s_cmp_eq_u32 s15, 0
    s_cbranch_scc1 .Lend

    s_mov_b32 s17, 0                                // cursor mod capacity: long division, a bit a turn
    s_mov_b32 s18, 32
    s_mov_b32 s19, s16
.Lbit:
    s_lshl_b32 s17, s17, 1
    s_lshr_b32 s20, s19, 31
    s_or_b32 s17, s17, s20
    s_lshl_b32 s19, s19, 1
    s_sub_co_u32 s20, s17, s14
    s_cselect_b32 s17, s17, s20                     // SCC is the borrow
    s_sub_co_i32 s18, s18, 1
    s_cmp_lg_u32 s18, 0
    s_cbranch_scc1 .Lbit

    s_mov_b32 s18, 0                                // the row
.Lrow:
    s_load_b32 s22, s[4:5], 0x0
    s_load_b32 s23, s[6:7], 0x0
    s_lshl_b32 s24, s17, 3
    s_mov_b32 s25, 0
    s_add_nc_u64 s[26:27], s[8:9], s[24:25]
    s_wait_alu 0xfffe
    s_wait_kmcnt 0x0
    v_mov_b32 v2, s23
    v_mov_b32 v3, s22
    global_store_b64 v1, v[2:3], s[26:27]
    s_add_nc_u64 s[4:5], s[4:5], 4
    s_add_nc_u64 s[6:7], s[6:7], 4
    s_add_co_i32 s17, s17, 1
    s_cmp_eq_u32 s17, s14
    s_cselect_b32 s17, 0, s17
    s_add_co_i32 s18, s18, 1
    s_cmp_lt_u32 s18, s15
    s_cbranch_scc1 .Lrow
    s_add_co_i32 s28, s16, s15
    v_mov_b32 v2, s28
    global_store_b32 v1, v2, s[10:11]
.Lend:
    s_endpgm
zrt_end
