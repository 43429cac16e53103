// SIGMOID_MUL: y = x * sigmoid(gate), f32.
.include "zrt.inc"
.include "arith.inc"
.include "elementwise.inc"

.macro element y, a, b
    f32_sigmoid v22, \b, v18, v19, v20, v21
    v_mul_f32 \y, \a, v22
.endm

zrt_kernel name=sigmoid_mul, buffers=3, constants=1, threads=32, vgprs=28, sgprs=16
    elementwise_2_arguments
    elementwise_2
zrt_end
