// ADD: y = a + b, f32.
.include "zrt.inc"
.include "arith.inc"
.include "elementwise.inc"

.macro element y, a, b
    v_add_f32 \y, \a, \b
.endm

zrt_kernel name=add, buffers=3, constants=1, threads=32, vgprs=28, sgprs=16
    elementwise_2_arguments
    elementwise_2
zrt_end
