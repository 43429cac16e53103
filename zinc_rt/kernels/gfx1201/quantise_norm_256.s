// Activations that are the RMS norm of x, in blocks of 256, for weights of the K types. Arguments: quantise.inc.
.set NORMED, 1
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "matvec_norm.inc"
.include "q8.inc"
.include "quantise.inc"

zrt_kernel name=quantise_norm_256, buffers=4, constants=4, threads=32, vgprs=96, sgprs=82
    quantise_256
zrt_end
