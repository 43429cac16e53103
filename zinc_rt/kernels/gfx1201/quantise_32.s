// Activations in blocks of 32, for weights q8_0 and q4_0. Arguments: quantise.inc.
.include "zrt.inc"
.include "arith.inc"
.include "q8.inc"
.include "quantise.inc"

zrt_kernel name=quantise_32, buffers=3, constants=2, threads=32, vgprs=64, sgprs=82
    quantise_32
zrt_end
