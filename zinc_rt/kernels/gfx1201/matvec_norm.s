// matvec of up to four weights of one type on the RMS norm of one input: matvec_parts, and norm's weight behind its
// buffers, f32 [k]. One of the parts may have a convolution: matvec_conv.inc.
//
// grid: x tokens (or logit rows), y blocks of 16 rows, each part's after those of the part before, z choices of experts
// buffers: x, ids, row, then for each of four parts: weight, y, scale, bias; all as matvec.inc has them; norm's weight;
//          source, target, bias of the convolution
// constants: k, choices, flags (4: x is [grid x][choices][k]), first blocks of parts 1, 2 and 3 (0xffffffff where there
//            are fewer), eps, 0; then for each of four parts: bytes a row of plane 0, offset and bytes a row of planes 1
//            and 2, flags (bits 3:0, 5, 7:9), n, 0
.set PARTS, 4
.set NORMED, 1
.set CONVOLVES, 1
.set MORE_BUFFERS, 3
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "matvec_norm.inc"
.include "matvec_conv.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_norm_\type, buffers=23, constants=40, threads=128, vgprs=128, sgprs=72
    matvec_parts_begin
    matvec_reciprocal
    matvec_rows \type
.Lend:
    s_endpgm
zrt_end
.endm
