// Activations in blocks of 256, for weights of the K types. Arguments: quantise.inc.
.include "zrt.inc"
.include "arith.inc"
.include "q8.inc"
.include "quantise.inc"

zrt_kernel name=quantise_256, buffers=3, constants=2, threads=32, vgprs=64, sgprs=82
    quantise_256
zrt_end
