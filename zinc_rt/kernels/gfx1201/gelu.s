// GELU: y = gelu(x), f32, the tanh form. Constants: columns.
.include "zrt.inc"
.include "arith.inc"
.include "elementwise.inc"

.macro element y, a
    f32_gelu \y, \a, v18, v19, v20, v21
.endm

zrt_kernel name=gelu, buffers=2, constants=1, threads=32, vgprs=24, sgprs=16
    s_clause 1
    s_load_b128 s[4:7], s[0:1], 0
    s_load_b32 s12, s[0:1], 16
    s_wait_kmcnt 0
    elementwise_1
zrt_end
