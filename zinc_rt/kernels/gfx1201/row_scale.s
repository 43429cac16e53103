// ROW_SCALE: y[t] = x[t] * table[position[t]], f32. Buffers: x, y, position, table. Constants: columns.
.include "zrt.inc"
.include "arith.inc"
.include "elementwise.inc"

.macro element y, a
    v_mul_f32 \y, s16, \a
.endm

zrt_kernel name=row_scale, buffers=4, constants=1, threads=32, vgprs=24, sgprs=18
    s_clause 2
    s_load_b128 s[4:7], s[0:1], 0
    s_load_b128 s[8:11], s[0:1], 16
    s_load_b32 s12, s[0:1], 32
    s_and_b32 s2, ttmp7, 0xffff
    s_lshl_b32 s2, s2, 2
    s_wait_kmcnt 0
    s_load_b32 s2, s[8:9], s2
    s_wait_kmcnt 0
    s_lshl_b32 s2, s2, 2
    s_load_b32 s16, s[10:11], s2
    s_wait_kmcnt 0
    elementwise_1
zrt_end
