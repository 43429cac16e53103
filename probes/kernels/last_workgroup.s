// Adds (group + 1) * (lane + 1) * step to every partial sum; the last workgroup to finish adds all of them up.
//
// Line n of a lane's four cache lines belongs to the workgroups with n in bits 3:2. So every compute unit reads each line
// before later workgroups on other units change it, and the last workgroup must not read what its own caches hold.
// buffers: sums u32[64][128], arrivals u32[1], out u32[64]
// constants: 128 workgroups, number of arrivals before the last one, step
.include "zrt.inc"
.include "last_workgroup.inc"
zrt_kernel name=last_workgroup, buffers=3, constants=3, threads=64, vgprs=16, sgprs=64, lds=512
    s_load_b64 s[4:5], s[0:1], 0x0
    s_load_b64 s[8:9], s[0:1], 0x10
    s_load_b96 s[12:14], s[0:1], 0x18
    v_and_b32 v0, 0x3ff, v0
    s_bfe_u32 s16, ttmp8, 0x50019       // wave in the workgroup
    s_bfe_u32 s18, ttmp9, 0x20002
    s_lshl_b32 s18, s18, 5              // the line
    s_lshr_b32 s19, ttmp9, 4
    s_lshl_b32 s19, s19, 2
    s_or_b32 s18, s18, s19
    s_and_b32 s19, ttmp9, 3
    s_or_b32 s18, s18, s19
    s_wait_kmcnt 0x0
    v_mul_lo_u32 v1, v0, s12
    s_wait_alu 0xfffe
    v_add_nc_u32 v2, s18, v1
    v_lshlrev_b32 v2, 2, v2
    global_load_b32 v4, v2, s[4:5]
    s_add_co_i32 s20, ttmp9, 1
    s_mul_i32 s20, s20, s14
    v_add_nc_u32 v8, 1, v0
    s_wait_alu 0xfffe
    v_mul_lo_u32 v8, v8, s20
    s_wait_loadcnt 0x0
    v_add_nc_u32 v4, v4, v8
    global_store_b32 v2, v4, s[4:5]
    s_mov_b32 s17, 0
    await_last 8, s17, s13, s16, 0, .Lend
    v_lshlrev_b32 v1, 2, v1
    v_mov_b32 v9, 0
    s_mov_b32 s22, s12
.Lsum:
    global_load_b32 v10, v1, s[4:5]
    v_add_nc_u32 v1, 4, v1
    s_add_co_i32 s22, s22, -1
    s_wait_loadcnt 0x0
    v_add_nc_u32 v9, v9, v10
    s_cmp_lg_u32 s22, 0
    s_cbranch_scc1 .Lsum
    v_lshlrev_b32 v0, 2, v0
    global_store_b32 v0, v9, s[8:9]
.Lend:
    s_endpgm
zrt_end
