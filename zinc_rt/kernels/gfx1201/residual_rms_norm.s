// RESIDUAL_RMS_NORM: hidden = x + residual, y = RMS_NORM of it, f32.
// Buffers: x, residual, weight, y, hidden. Constants: size, eps. Grid: 1, rows.
.set NORM_RESIDUAL, 1
.include "zrt.inc"
.include "arith.inc"
.include "norm.inc"

zrt_kernel name=residual_rms_norm, buffers=5, constants=2, threads=32, vgprs=NORM_VGPRS, sgprs=24
    s_clause 2
    s_load_b256 s[4:11], s[0:1], 0
    s_load_b64 s[22:23], s[0:1], 32
    s_load_b64 s[12:13], s[0:1], 40
    s_and_b32 s2, ttmp7, 0xffff
    s_wait_kmcnt 0
    s_mul_hi_u32 s3, s2, s12
    s_mul_i32 s2, s2, s12
    s_lshl_b64 s[2:3], s[2:3], 2
    s_add_nc_u64 s[4:5], s[4:5], s[2:3]
    s_add_nc_u64 s[6:7], s[6:7], s[2:3]
    s_add_nc_u64 s[10:11], s[10:11], s[2:3]
    s_add_nc_u64 s[22:23], s[22:23], s[2:3]
    norm_reciprocal
    norm_apply
zrt_end
