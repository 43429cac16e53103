// Activations that are the RMS norm of x, in blocks of 32, for weights q8_0 and q4_0. Arguments: quantise.inc.
.set NORMED, 1
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "matvec_norm.inc"
.include "q8.inc"
.include "quantise.inc"

zrt_kernel name=quantise_norm_32, buffers=4, constants=4, threads=32, vgprs=96, sgprs=82
    quantise_32
zrt_end
