// RMS_NORM: y = (x * 1 / sqrt(dot(x, x) / size + eps)) * w over groups of `size` neighbours, f32.
// Buffers: x, weight or 0, y. Constants: size, eps, columns of a row. Grid: groups of a row, rows.
.set NORM_RESIDUAL, 0
.include "zrt.inc"
.include "arith.inc"
.include "norm.inc"

zrt_kernel name=rms_norm, buffers=3, constants=3, threads=32, vgprs=NORM_VGPRS, sgprs=24
    s_clause 2
    s_load_b64 s[4:5], s[0:1], 0
    s_load_b128 s[8:11], s[0:1], 8
    s_load_b96 s[12:14], s[0:1], 24
    norm_group 4, 10
    norm_reciprocal
    norm_apply
zrt_end
