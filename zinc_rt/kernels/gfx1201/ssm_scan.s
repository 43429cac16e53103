// SSM_SCAN, token by token: dt = softplus(dt); S = S * exp(dt * a) + (dt * u) * b; y = dot(S, c) + d * u. A lane is a
// channel, with its states in registers; group x 32 channels, group y a sequence.
//
// buffers: u f32[T][C]; dt f32[T][C]; b f32[T][N]; c f32[T][N]; a f32[C][N]; d f32[C]; state f32[S][C][N]; new state,
//          the same shape; sequence i32[T]; y f32[T][C]; counts i32[3]
// constants: C; N, at most 16
.include "zrt.inc"
.include "arith.inc"
.include "sequence.inc"
.set STATE, 16
.set RATE, 32
.set PRODUCT, 48
zrt_kernel name=ssm_scan, buffers=11, constants=2, threads=32, vgprs=64, sgprs=88

// The statement for each of the N states.
.macro for_states statement, a, b
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    s_cmp_le_u32 s27, \n
    s_cbranch_scc1 .Lstates\@
    \statement \n, \a, \b
    .endr
.Lstates\@:
.endm

.macro load_state n, first, base
    global_load_b32 v[\first + \n], v1, \base offset:4*\n
.endm

.macro store_state n, first, base
    global_store_b32 v1, v[\first + \n], \base offset:4*\n
.endm

.macro load_scalar n, first, base
    s_load_b32 s[\first + \n], \base, 4*\n
.endm

.macro load_scalars first, base
    s_cmp_eq_u32 s27, 16
    s_cbranch_scc0 .Lfewer\@
    s_load_b512 s[\first:\first + 15], \base, 0x0
    s_branch .Lloaded\@
.Lfewer\@:
    for_states load_scalar, \first, \base
.Lloaded\@:
.endm

.macro scan_state n, b, c
    v_mul_f32 v8, v4, v[RATE + \n]
    f32_exp v8, v8, v9, v10, v11
    v_mul_f32 v[STATE + \n], v[STATE + \n], v8
    v_mul_f32 v9, s[\b + \n], v5
    v_add_f32 v[STATE + \n], v[STATE + \n], v9
    v_mul_f32 v[PRODUCT + \n], s[\c + \n], v[STATE + \n]
.endm

    s_load_b512 s[4:19], s[0:1], 0x0                // u, dt, b, c, a, d, state, new state
    s_load_b128 s[20:23], s[0:1], 0x40              // sequence, y
    s_load_b128 s[24:27], s[0:1], 0x50              // counts, C, N
    s_lshl_b32 s28, ttmp9, 5
    v_add_nc_u32 v0, s28, v0                        // the channel
    s_and_b32 s29, ttmp7, 0xffff                    // the sequence
    s_wait_kmcnt 0x0
    v_cmp_gt_u32 vcc_lo, s26, v0
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend
    s_load_b32 s30, s[24:25], 0x0                   // tokens
    s_lshl_b32 s34, s27, 2                          // bytes of a row of states
    s_mov_b32 s35, 0
    s_lshl_b32 s36, s26, 2                          // of a row of channels
    s_mov_b32 s37, 0
    s_mul_hi_u32 s39, s36, s27
    s_mul_i32 s38, s36, s27                         // of all states of a sequence
    s_mul_hi_u32 s41, s38, s29
    s_mul_i32 s40, s38, s29
    s_mul_i32 s39, s39, s29
    s_add_co_u32 s41, s41, s39
    s_add_nc_u64 s[16:17], s[16:17], s[40:41]
    s_add_nc_u64 s[18:19], s[18:19], s[40:41]
    v_mul_lo_u32 v1, s34, v0                        // the channel's states
    v_lshlrev_b32 v0, 2, v0
    for_states load_state, STATE, s[16:17]
    for_states load_state, RATE, s[12:13]
    global_load_b32 v7, v0, s[14:15]                // d
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
    s_wait_loadcnt 0x0
    s_cmp_ge_u32 s31, s33
    s_cbranch_scc1 .Ldone
.Ltoken:
    s_clause 0x1
    global_load_b32 v3, v0, s[6:7]
    global_load_b32 v2, v0, s[4:5]
    load_scalars 40, s[8:9]                         // b
    load_scalars 56, s[10:11]                       // c
    .irp v, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63
    v_mov_b32 v\v, 0
    .endr
    s_wait_loadcnt 0x1
    f32_softplus v4, v3, v8, v9, v10, v11           // dt
    s_wait_loadcnt 0x0
    v_mul_f32 v5, v4, v2
    s_wait_kmcnt 0x0
    for_states scan_state, 40, 56
    f32_sum4 v8, v48, v49, v50, v51                 // as the canonical dot adds 16 elements
    f32_sum4 v9, v52, v53, v54, v55
    f32_sum4 v10, v56, v57, v58, v59
    f32_sum4 v11, v60, v61, v62, v63
    f32_sum4 v8, v8, v9, v10, v11
    v_add_f32 v8, 0, v8                             // a sum that starts at +0 is never -0
    v_mul_f32 v9, v7, v2
    v_add_f32 v8, v8, v9
    global_store_b32 v0, v8, s[22:23]
    s_add_nc_u64 s[4:5], s[4:5], s[36:37]
    s_add_nc_u64 s[6:7], s[6:7], s[36:37]
    s_add_nc_u64 s[8:9], s[8:9], s[34:35]
    s_add_nc_u64 s[10:11], s[10:11], s[34:35]
    s_add_nc_u64 s[22:23], s[22:23], s[36:37]
    s_add_co_u32 s31, s31, 1
    s_cmp_lt_u32 s31, s33
    s_cbranch_scc1 .Ltoken
.Ldone:
    for_states store_state, STATE, s[18:19]
.Lend:
    s_endpgm
zrt_end
