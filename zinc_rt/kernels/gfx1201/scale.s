// SCALE: y = (x * factor) * weight[0], f32; a weight of 0 is none. Buffers: x, y, weight. Constants: columns, factor.
.include "zrt.inc"
.include "arith.inc"
.include "elementwise.inc"

.macro element y, a
    v_mul_f32 \y, s13, \a
    v_mul_f32 \y, s16, \y
.endm

zrt_kernel name=scale, buffers=3, constants=2, threads=32, vgprs=24, sgprs=18
    s_clause 1
    s_load_b128 s[4:7], s[0:1], 0
    s_load_b128 s[8:11], s[0:1], 16
    s_wait_kmcnt 0
    s_mov_b64 s[12:13], s[10:11]
    s_mov_b32 s16, 1.0                              // times 1 changes no bit of a number
    s_cmp_eq_u64 s[8:9], 0
    s_cbranch_scc1 .Lscale_weight_known
    s_load_b32 s16, s[8:9], 0
    s_wait_kmcnt 0
.Lscale_weight_known:
    elementwise_1
zrt_end
