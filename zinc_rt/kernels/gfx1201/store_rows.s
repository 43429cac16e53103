// STORE_REQUEST_STATE: to[ids[s]] = from[s].
//
// buffers: from; ids i32[S]; to
// constants: dwords of a row
.include "zrt.inc"
.include "rows.inc"
zrt_kernel name=store_rows, buffers=3, constants=1, threads=256, vgprs=16, sgprs=24
    move_rows to
zrt_end
