// Holds a value in every vector register from v4 on, and folds them. Run with mask 0 and with all ones, each bit of each
// register is 0 once and 1 once.
//
// buffers: out u32[groups * threads]: h = 31 h + v, v4 first; register r of work-item i is (i + r * 0x01000193) ^ mask
// constants: mask
.include "zrt.inc"
zrt_kernel name=registers, buffers=1, constants=1, threads=32, vgprs=256, sgprs=24
    s_clause 0x1
    s_load_b64 s[4:5], s[0:1], 0x0
    s_load_b32 s6, s[0:1], 0x8
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v1, ttmp9, 5, v0
    s_wait_kmcnt 0x0
    .set .Lr, 4
    .rept 252
    v_add_nc_u32 v[.Lr], lit((.Lr * 0x01000193) & 0xffffffff), v1
    v_xor_b32 v[.Lr], s6, v[.Lr]
    .set .Lr, .Lr + 1
    .endr
    s_sleep 0x10
    v_mov_b32 v2, 0
    .set .Lr, 4
    .rept 252
    v_mul_lo_u32 v2, 31, v2
    v_add_nc_u32 v2, v2, v[.Lr]
    .set .Lr, .Lr + 1
    .endr
    v_lshlrev_b32 v1, 2, v1
    global_store_b32 v1, v2, s[4:5]
    s_endpgm
zrt_end
