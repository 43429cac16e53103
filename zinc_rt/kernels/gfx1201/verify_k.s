// VERIFY_K: how many drafted tokens the target agrees with, and the target's token after them. One wave a sequence.
//
// buffers: draft i32[S][K]; target i32[S][K + 1]; accept_len i32[S]; next_token i32[S]
// constants: K
.include "zrt.inc"
zrt_kernel name=verify_k, buffers=4, constants=1, threads=32, vgprs=16, sgprs=32

    s_load_b256 s[4:11], s[0:1], 0x0                // draft, target, accept_len, next_token
    s_load_b32 s12, s[0:1], 0x20                    // K
    v_mov_b32 v1, 0
    s_mov_b32 exec_lo, 1
    s_wait_kmcnt 0x0
    s_mul_i32 s14, ttmp9, s12
    s_mul_hi_u32 s15, ttmp9, s12
    s_lshl_b64 s[14:15], s[14:15], 2
    s_add_nc_u64 s[4:5], s[4:5], s[14:15]
    s_add_co_i32 s13, s12, 1
    s_mul_i32 s14, ttmp9, s13
    s_mul_hi_u32 s15, ttmp9, s13
    s_lshl_b64 s[14:15], s[14:15], 2
    s_add_nc_u64 s[6:7], s[6:7], s[14:15]
    s_mov_b32 s16, 0                                // tokens that agree
.Ltoken:
    s_load_b32 s18, s[6:7], 0x0
    s_cmp_eq_u32 s16, s12
    s_cbranch_scc1 .Ldone
    s_load_b32 s19, s[4:5], 0x0
    s_wait_kmcnt 0x0
    s_cmp_lg_u32 s18, s19
    s_cbranch_scc1 .Ldone
    s_add_nc_u64 s[4:5], s[4:5], 4
    s_add_nc_u64 s[6:7], s[6:7], 4
    s_add_co_i32 s16, s16, 1
    s_branch .Ltoken
.Ldone:
    s_wait_kmcnt 0x0
    s_lshl_b32 s20, ttmp9, 2
    v_mov_b32 v2, s16
    v_mov_b32 v3, s18
    v_mov_b32 v4, s20
    global_store_b32 v4, v2, s[8:9]
    global_store_b32 v4, v3, s[10:11]
    s_endpgm
zrt_end
