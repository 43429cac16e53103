// gpt-oss's activation: y = (g * sigmoid(1.702 g)) * (u + 1), g = min(gate, 7), u = up within -7 and 7, f32.
.include "zrt.inc"
.include "arith.inc"
.include "elementwise.inc"

.macro element y, a, b
    v_minimum_f32 v22, 0x40e00000, \a              // 7
    v_mul_f32 v23, 0x3fd9db23, v22                  // 1.702
    f32_sigmoid v23, v23, v18, v19, v20, v21
    v_mul_f32 v22, v22, v23
    v_minimum_f32 v23, 0x40e00000, \b
    v_maximum_f32 v23, 0xc0e00000, v23
    v_add_f32 v23, 1.0, v23
    v_mul_f32 \y, v22, v23
.endm

zrt_kernel name=swiglu_clamped, buffers=3, constants=1, threads=32, vgprs=28, sgprs=16
    elementwise_2_arguments
    elementwise_2
zrt_end
