// SWIGLU: y = silu(gate) * up, f32.
.include "zrt.inc"
.include "arith.inc"
.include "elementwise.inc"

.macro element y, a, b
    f32_silu v22, \a, v18, v19, v20, v21
    v_mul_f32 \y, v22, \b
.endm

zrt_kernel name=swiglu, buffers=3, constants=1, threads=32, vgprs=28, sgprs=16
    elementwise_2_arguments
    elementwise_2
zrt_end
