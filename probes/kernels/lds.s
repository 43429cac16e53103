// Writes LDS in order, waits for the whole workgroup, reads it backwards: what a lane reads another wave wrote.
//
// buffers: out u32[groups][count]: element i is (count - 1 - i) ^ 0x5a17ed00
// constants: count, a multiple of 128
.include "zrt.inc"
zrt_kernel name=lds, buffers=1, constants=1, threads=128, vgprs=16, sgprs=16, lds=65536
    s_clause 0x1
    s_load_b64 s[2:3], s[0:1], 0x0
    s_load_b32 s4, s[0:1], 0x8
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v2, 2, v0
    v_lshlrev_b32 v5, 2, v0
    v_mov_b32 v1, v0
    s_wait_kmcnt 0x0
    s_lshr_b32 s5, s4, 7
.Lwrite:
    v_xor_b32 v3, lit(0x5a17ed00), v1
    ds_store_b32 v2, v3
    v_add_nc_u32 v1, 0x80, v1
    v_add_nc_u32 v2, 0x200, v2
    s_add_co_i32 s5, s5, -1
    s_cmp_lg_u32 s5, 0
    s_cbranch_scc1 .Lwrite
    s_wait_dscnt 0x0
    s_barrier_signal -1
    s_barrier_wait -1
    s_mul_i32 s6, ttmp9, s4
    s_mov_b32 s7, 0
    s_lshl_b64 s[6:7], s[6:7], 2
    s_add_nc_u64 s[2:3], s[2:3], s[6:7]
    s_lshr_b32 s5, s4, 7
    s_lshl_b32 s8, s4, 2
    v_sub_nc_u32 v4, s8, v5
    v_add_nc_u32 v4, -4, v4
.Lread:
    ds_load_b32 v6, v4
    v_add_nc_u32 v4, lit(0xfffffe00), v4
    s_wait_dscnt 0x0
    global_store_b32 v5, v6, s[2:3]
    v_add_nc_u32 v5, 0x200, v5
    s_add_co_i32 s5, s5, -1
    s_cmp_lg_u32 s5, 0
    s_cbranch_scc1 .Lread
    s_endpgm
zrt_end
