// matvec of up to four weights of one type on one input, in one dispatch: a block of rows belongs to one part.
//
// grid: x tokens (or logit rows), y blocks of 16 rows, each part's after those of the part before, z choices of experts
// buffers: x, ids, row, then for each of four parts: weight, y, scale, bias; all as matvec.inc has them
// constants: k, choices, flags (4: x is [grid x][choices][k]), first blocks of parts 1, 2 and 3 (0xffffffff where there
//            are fewer), 0, 0; then for each of four parts: bytes a row of plane 0, offset and bytes a row of planes 1
//            and 2, flags (bits 3:0, 5), n, 0
.set PARTS, 4
.include "zrt.inc"
.include "arith.inc"
.include "matvec.inc"
.include "plain.inc"
.include "weights.inc"

.macro zrt_of_weight type
zrt_kernel name=matvec_parts_\type, buffers=19, constants=40, threads=128, vgprs=96, sgprs=72
    matvec_parts_begin
    matvec_rows \type
.Lend:
    s_endpgm
zrt_end
.endm
