// Nothing: a launch that only has to end. Runs in wave32 and wave64 alike.
.include "zrt.inc"
zrt_kernel name=empty, threads=32, vgprs=8, sgprs=8
    s_endpgm
zrt_end
