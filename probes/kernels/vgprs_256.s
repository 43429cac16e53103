.include "zrt.inc"
.include "vgprs.inc"
vgprs_kernel 256
