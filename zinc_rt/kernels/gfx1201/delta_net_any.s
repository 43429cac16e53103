// As delta_net, of heads of any width: S stays in memory, in the row that is written. Group x is one value dimension, a
// wave, y the v head, z the sequence; 128 elements of the key dimension at a time, four neighbours a lane.
//
// buffers: conv_out f32[T][row]; unit f32[T][2 k_heads][d]; gates f32[T][H][2]; state f32[rows][H][d][d]; new state, the
//          same shape; sequence i32[T]; source i32[S] or 0; target i32[S] or 0; y f32[T][H][d]; counts i32[3]
// constants: d; row; k_heads; H; v_heads of a k head, or 0: n mod k_heads; shrink
.set DELTA_STEP, 0
.set DELTA_ANY, 1
.include "zrt.inc"
.include "arith.inc"
.include "sequence.inc"
.include "delta_net.inc"
.include "any_width.inc"
.set S, 4
.set K, 8
.set Q, 12
.set SUM, 16
zrt_kernel name=delta_net_any, buffers=10, constants=6, threads=32, vgprs=24, sgprs=88

// v20 = the sum of the lanes' accumulators; those start again at +0.
.macro sum_up
    f32_sum4 v20, v[SUM], v[SUM + 1], v[SUM + 2], v[SUM + 3]
    f32_butterfly v20, v21
    clear_sums
.endm

.macro clear_sums
    .irp e, 0, 1, 2, 3
    v_mov_b32 v[SUM + \e], 0
    .endr
.endm

    delta_places
    s_cmp_ge_u32 s70, s71
    s_cbranch_scc1 .Lsilent
    clear_sums
.Ltoken:
    s_load_b64 s[72:73], s[8:9], 0x0                // decay, rate
    s_load_b32 s74, s[4:5], 0x0                     // v
    v_mov_b32 v1, v2
    s_mov_b32 s84, s24
    s_wait_kmcnt 0x0
.Lforget:
    element_masks 80, s84, 76
    elements_load S, 1, 10, 80
    elements_load K, 1, 54, 80
    s_wait_loadcnt 0x0
    .irp e, 0, 1, 2, 3
    s_mov_b32 exec_lo, s[80 + \e]
    v_mul_f32 v[S + \e], s72, v[S + \e]
    v_mul_f32 v20, v[S + \e], v[K + \e]
    v_add_f32 v[SUM + \e], v[SUM + \e], v20
    .endr
    elements_store S, 1, 12, 80
    v_add_nc_u32 v1, 0x200, v1
    s_sub_co_i32 s84, s84, 128
    s_cmp_gt_i32 s84, 0
    s_cbranch_scc1 .Lforget
    sum_up
    v_sub_f32 v20, s74, v20
    v_mul_f32 v22, s73, v20                         // delta
    v_mov_b32 v1, v2
    s_mov_b32 s84, s24
    s_wait_storecnt 0x0                             // lanes read what they stored themselves
.Llearn:
    element_masks 80, s84, 76
    elements_load S, 1, 12, 80
    elements_load K, 1, 54, 80
    elements_load Q, 1, 52, 80
    s_wait_loadcnt 0x0
    .irp e, 0, 1, 2, 3
    s_mov_b32 exec_lo, s[80 + \e]
    v_mul_f32 v20, v[K + \e], v22
    v_add_f32 v[S + \e], v[S + \e], v20
    v_mul_f32 v20, v[S + \e], v[Q + \e]
    v_add_f32 v[SUM + \e], v[SUM + \e], v20
    .endr
    elements_store S, 1, 12, 80
    v_add_nc_u32 v1, 0x200, v1
    s_sub_co_i32 s84, s84, 128
    s_cmp_gt_i32 s84, 0
    s_cbranch_scc1 .Llearn
    sum_up
    v_mul_f32 v20, s29, v20
    v_mov_b32 v21, 0
    s_mov_b32 exec_lo, 1
    global_store_b32 v21, v20, s[20:21]
    s_mov_b32 exec_lo, -1
    s_mov_b64 s[10:11], s[12:13]
    s_wait_storecnt 0x0
    s_add_nc_u64 s[52:53], s[52:53], s[60:61]
    s_add_nc_u64 s[54:55], s[54:55], s[60:61]
    s_add_nc_u64 s[4:5], s[4:5], s[62:63]
    s_add_nc_u64 s[8:9], s[8:9], s[64:65]
    s_add_nc_u64 s[20:21], s[20:21], s[66:67]
    s_add_co_i32 s70, s70, 1
    s_cmp_lt_u32 s70, s71
    s_cbranch_scc1 .Ltoken
    s_endpgm
.Lsilent:
    row_copy 10, 12, s24, 2, S, 80, s84, 76
.Lend:
    s_endpgm
zrt_end
