// SOFTCAP: y = tanh(x / cap) * cap, f32. Constants: columns, cap.
.include "zrt.inc"
.include "arith.inc"
.include "elementwise.inc"

.macro element y, a
    f32_div v16, \a, s13, v18, v19, v20, v21, v22, v23
    f32_tanh v16, v16, v18, v19, v20, v21
    v_mul_f32 \y, s13, v16
.endm

zrt_kernel name=softcap, buffers=2, constants=2, threads=32, vgprs=24, sgprs=16
    s_clause 1
    s_load_b128 s[4:7], s[0:1], 0
    s_load_b64 s[12:13], s[0:1], 16
    s_wait_kmcnt 0
    elementwise_1
zrt_end
