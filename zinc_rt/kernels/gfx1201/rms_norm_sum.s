// RMS_NORM with a residual: y = residual + (x * 1 / sqrt(dot(x, x) / size + eps)) * w over groups of `size` neighbours, f32.
// Buffers: x, weight or 0, y, residual. Constants: size, eps, columns of a row. Grid: groups of a row, rows.
.set NORM_RESIDUAL, 0
.set NORM_SUM, 1
.include "zrt.inc"
.include "arith.inc"
.include "norm.inc"

zrt_kernel name=rms_norm_sum, buffers=4, constants=3, threads=32, vgprs=NORM_VGPRS, sgprs=24
    s_clause 3
    s_load_b64 s[4:5], s[0:1], 0
    s_load_b128 s[8:11], s[0:1], 8
    s_load_b64 s[22:23], s[0:1], 24
    s_load_b96 s[12:14], s[0:1], 32
    norm_group 4, 10, 22
    norm_reciprocal
    norm_apply
zrt_end
