// As ssm_scan, of any number of states: they stay in memory, in the row that is written. Group x is a channel, y a
// sequence; a wave has 128 states at a time, four neighbours a lane.
//
// buffers: u f32[T][C]; dt f32[T][C]; b f32[T][N]; c f32[T][N]; a f32[C][N]; d f32[C]; state f32[S][C][N]; new state,
//          the same shape; sequence i32[T]; y f32[T][C]; counts i32[3]
// constants: C; N
.include "zrt.inc"
.include "arith.inc"
.include "sequence.inc"
.include "any_width.inc"
.set STATE, 16
.set RATE, 20
.set B, 24
.set C, 28
.set SUM, 32
zrt_kernel name=ssm_scan_any, buffers=11, constants=2, threads=32, vgprs=40, sgprs=80

    s_load_b512 s[4:19], s[0:1], 0x0                // u, dt, b, c, a, d, state, new state
    s_load_b128 s[20:23], s[0:1], 0x40              // sequence, y
    s_load_b128 s[24:27], s[0:1], 0x50              // counts, C, N
    s_and_b32 s29, ttmp7, 0xffff                    // the sequence
    v_and_b32 v0, 31, v0
    v_lshlrev_b32 v0, 4, v0
    s_wait_kmcnt 0x0
    s_load_b32 s30, s[24:25], 0x0                   // tokens
    s_lshl_b32 s34, s27, 2                          // bytes of a row of states
    s_mov_b32 s35, 0
    s_lshl_b32 s36, s26, 2                          // of a row of channels
    s_mov_b32 s37, 0
    s_mul_i32 s38, s29, s26
    s_add_co_u32 s38, s38, ttmp9                    // sequence * C + channel
    s_mul_hi_u32 s41, s34, s38
    s_mul_i32 s40, s34, s38
    s_add_nc_u64 s[16:17], s[16:17], s[40:41]       // the state that is read
    s_add_nc_u64 s[18:19], s[18:19], s[40:41]       // and written
    s_mul_hi_u32 s41, s34, ttmp9
    s_mul_i32 s40, s34, ttmp9
    s_add_nc_u64 s[12:13], s[12:13], s[40:41]       // the channel's rates
    s_lshl_b32 s40, ttmp9, 2
    s_mov_b32 s41, 0
    s_add_nc_u64 s[4:5], s[4:5], s[40:41]
    s_add_nc_u64 s[6:7], s[6:7], s[40:41]
    s_add_nc_u64 s[14:15], s[14:15], s[40:41]
    s_add_nc_u64 s[22:23], s[22:23], s[40:41]
    s_load_b32 s42, s[14:15], 0x0                   // d
    s_wait_kmcnt 0x0
    first_token s31, s[20:21], s29, s30, 72         // the token
    s_add_co_u32 s29, s29, 1
    first_token s33, s[20:21], s29, s30, 72         // the first that is another's
.macro advance base, bytes
    s_mul_hi_u32 s73, \bytes, s31
    s_mul_i32 s72, \bytes, s31
    s_add_nc_u64 s[\base:\base+1], s[\base:\base+1], s[72:73]
.endm
    advance 4, s36
    advance 6, s36
    advance 8, s34
    advance 10, s34
    advance 22, s36
    s_cmp_ge_u32 s31, s33
    s_cbranch_scc1 .Lsilent
.Ltoken:
    s_load_b32 s44, s[4:5], 0x0                     // u
    s_load_b32 s45, s[6:7], 0x0
    s_wait_kmcnt 0x0
    v_mov_b32 v2, s44
    v_mov_b32 v3, s45
    f32_softplus v4, v3, v8, v9, v10, v11           // dt
    v_mul_f32 v5, v4, v2
    v_mov_b32 v1, v0
    .irp e, 0, 1, 2, 3
    v_mov_b32 v[SUM + \e], 0
    .endr
    s_mov_b32 s46, s27
.Lstates:
    element_masks 48, s46, 52
    elements_load STATE, 1, 16, 48
    elements_load RATE, 1, 12, 48
    elements_load B, 1, 8, 48
    elements_load C, 1, 10, 48
    s_wait_loadcnt 0x0
    .irp e, 0, 1, 2, 3
    s_mov_b32 exec_lo, s[48 + \e]
    v_mul_f32 v8, v4, v[RATE + \e]
    f32_exp v8, v8, v9, v10, v11
    v_mul_f32 v[STATE + \e], v[STATE + \e], v8
    v_mul_f32 v9, v[B + \e], v5
    v_add_f32 v[STATE + \e], v[STATE + \e], v9
    v_mul_f32 v9, v[C + \e], v[STATE + \e]
    v_add_f32 v[SUM + \e], v[SUM + \e], v9
    .endr
    elements_store STATE, 1, 18, 48
    v_add_nc_u32 v1, 0x200, v1
    s_sub_co_i32 s46, s46, 128
    s_cmp_gt_i32 s46, 0
    s_cbranch_scc1 .Lstates
    f32_sum4 v8, v[SUM], v[SUM + 1], v[SUM + 2], v[SUM + 3]
    f32_butterfly v8, v9
    v_mul_f32 v9, s42, v2
    v_add_f32 v8, v8, v9
    v_mov_b32 v9, 0
    s_mov_b32 exec_lo, 1
    global_store_b32 v9, v8, s[22:23]
    s_mov_b32 exec_lo, -1
    s_mov_b64 s[16:17], s[18:19]                    // lanes read what they stored themselves
    s_wait_storecnt 0x0
    s_add_nc_u64 s[4:5], s[4:5], s[36:37]
    s_add_nc_u64 s[6:7], s[6:7], s[36:37]
    s_add_nc_u64 s[8:9], s[8:9], s[34:35]
    s_add_nc_u64 s[10:11], s[10:11], s[34:35]
    s_add_nc_u64 s[22:23], s[22:23], s[36:37]
    s_add_co_i32 s31, s31, 1
    s_cmp_lt_u32 s31, s33
    s_cbranch_scc1 .Ltoken
    s_endpgm
.Lsilent:
    row_copy 16, 18, s27, 0, STATE, 48, s46, 52
    s_endpgm
zrt_end
