// The gated delta rule's scalars of each token and v head: decay = exp(a * softplus(alpha + dt_bias)) and
// rate = sigmoid(beta). A lane is a head; group y a token.
//
// buffers: beta f32[T][H]; alpha f32[T][H]; dt_bias f32[H]; a f32[H]; gates f32[T][H][2], decay then rate
// constants: H
.include "zrt.inc"
.include "arith.inc"
zrt_kernel name=delta_gates, buffers=5, constants=1, threads=32, vgprs=24, sgprs=32

    s_load_b256 s[4:11], s[0:1], 0x0                // beta, alpha, dt_bias, a
    s_load_b96 s[12:14], s[0:1], 0x20               // gates, H
    v_and_b32 v0, 0x3ff, v0
    v_lshl_add_u32 v0, ttmp9, 5, v0
    s_and_b32 s15, ttmp7, 0xffff
    s_wait_kmcnt 0x0
    v_cmp_gt_u32 vcc_lo, s14, v0
    wait_vcc
    s_and_b32 exec_lo, exec_lo, vcc_lo
    s_cbranch_execz .Lend
    s_mul_i32 s16, s15, s14
    v_lshlrev_b32 v1, 2, v0
    v_add_nc_u32 v2, s16, v0
    v_lshlrev_b32 v3, 2, v2
    s_clause 0x3
    global_load_b32 v4, v3, s[6:7]
    global_load_b32 v5, v1, s[8:9]
    global_load_b32 v6, v1, s[10:11]
    global_load_b32 v7, v3, s[4:5]
    s_wait_loadcnt 0x2
    v_add_f32 v4, v4, v5
    f32_softplus v8, v4, v10, v11, v12, v13
    s_wait_loadcnt 0x1
    v_mul_f32 v8, v6, v8
    f32_exp v8, v8, v10, v11, v12
    s_wait_loadcnt 0x0
    f32_sigmoid v9, v7, v10, v11, v12, v13
    v_lshlrev_b32 v2, 3, v2
    global_store_b64 v2, v[8:9], s[12:13]
.Lend:
    s_endpgm
zrt_end
