// STREAM_OUT: an entry (ir/ring_entry.py) of each row into the output ring, in order, except for rows whose slot has
// backpressure; the cursor counts entries ever written. One lane writes; the rows are few.
//
// buffers: token i32[L]; row_slot i32[L]; position i32[L]; record i32[slots][64]; ring i32[capacity][4]; cursor i32[1];
//     counts i32[3]
// constants: capacity, slots
.include "zrt.inc"
.include "slots.inc"
zrt_kernel name=stream_out, buffers=7, constants=2, threads=32, vgprs=16, sgprs=48

    s_load_b256 s[4:11], s[0:1], 0x0                // token, row_slot, position, record
    s_load_b128 s[12:15], s[0:1], 0x20              // ring, cursor
    s_load_b96 s[16:18], s[0:1], 0x30               // counts, capacity
    v_mov_b32 v1, 0
    s_mov_b32 exec_lo, 1
    s_wait_kmcnt 0x0
    s_load_b32 s19, s[16:17], 0x8                   // rows
    s_load_b32 s20, s[14:15], 0x0                   // the cursor
    s_wait_kmcnt 0x0
    s_cmp_eq_u32 s19, 0
    s_cbranch_scc1 .Lend

    s_mov_b32 s21, 0                                // cursor mod capacity: long division, a bit a turn
    s_mov_b32 s22, 32
    s_mov_b32 s23, s20
.Lbit:
    s_lshl_b32 s21, s21, 1
    s_lshr_b32 s24, s23, 31
    s_or_b32 s21, s21, s24
    s_lshl_b32 s23, s23, 1
    s_sub_co_u32 s24, s21, s18
    s_cselect_b32 s21, s21, s24                     // SCC is the borrow
    s_sub_co_i32 s22, s22, 1
    s_cmp_lg_u32 s22, 0
    s_cbranch_scc1 .Lbit

    s_mov_b32 s22, 0                                // the row
.Lrow:
    s_load_b32 s24, s[6:7], 0x0                     // the slot
    s_load_b32 s26, s[4:5], 0x0                     // the token
    s_load_b32 s27, s[8:9], 0x0                     // its position
    s_mov_b32 s25, 0
    s_wait_kmcnt 0x0
    s_lshl_b64 s[28:29], s[24:25], 8
    s_add_nc_u64 s[28:29], s[10:11], s[28:29]
    s_load_b32 s30, s[28:29], 4*SLOT_FLAGS
    s_load_b32 s31, s[28:29], 4*SLOT_EPOCH
    s_load_b32 s33, s[28:29], 4*SLOT_LOGPROBS
    s_wait_kmcnt 0x0
    s_and_b32 s34, s30, SLOT_FLAG_BACKPRESSURE
    s_cbranch_scc1 .Lnext                           // the slot's reader is slow
    s_lshl_b32 s31, s31, 10
    s_or_b32 s36, s31, s24                          // the VALU reads only results, which need no s_wait_alu
    s_and_b32 s30, s30, 0xff
    s_add_co_i32 s33, s33, 1
    s_and_b32 s33, s33, 0xff
    s_lshl_b32 s33, s33, 8
    s_or_b32 s30, s30, s33
    s_lshl_b32 s33, s22, 16
    s_or_b32 s37, s30, s33
    s_lshl_b32 s34, s21, 4
    s_mov_b32 s35, 0
    s_add_nc_u64 s[34:35], s[12:13], s[34:35]
    s_wait_alu 0xfffe
    v_mov_b32 v2, s36
    v_mov_b32 v3, s27
    v_mov_b32 v4, s26
    v_mov_b32 v5, s37
    global_store_b128 v1, v[2:5], s[34:35]
    s_add_co_i32 s20, s20, 1
    s_add_co_i32 s21, s21, 1
    s_cmp_eq_u32 s21, s18
    s_cselect_b32 s21, 0, s21
.Lnext:
    s_add_nc_u64 s[4:5], s[4:5], 4
    s_add_nc_u64 s[6:7], s[6:7], 4
    s_add_nc_u64 s[8:9], s[8:9], 4
    s_add_co_i32 s22, s22, 1
    s_cmp_lt_u32 s22, s19
    s_cbranch_scc1 .Lrow
    v_mov_b32 v2, s20
    global_store_b32 v1, v2, s[14:15]
.Lend:
    s_endpgm
zrt_end
