// Of each head of each token, `columns` floats of x into y.
// Buffers: x, y. Constants: columns, then of x and of y: floats to where they begin in a token's row, from one head to
// the next, from one token to the next. Grid: heads, tokens, columns / 512 rounded up.
.include "zrt.inc"
.include "copy.inc"

zrt_kernel name=copy_columns, buffers=2, constants=7, threads=32, vgprs=24, sgprs=36
    s_clause 2
    s_load_b128 s[4:7], s[0:1], 0
    s_load_b128 s[12:15], s[0:1], 16                // columns, x_offset, x_head, x_token
    s_load_b96 s[16:18], s[0:1], 32                 // y_offset, y_head, y_token
    s_and_b32 s2, ttmp7, 0xffff                     // the token
    s_lshr_b32 s3, ttmp7, 16
    s_lshl_b32 s3, s3, 9                            // first column
    s_wait_kmcnt 0
.macro move base, offset, head, token
    s_mul_hi_u32 s21, s2, \token
    s_mul_i32 s20, s2, \token
    s_mul_i32 s22, ttmp9, \head
    s_add_co_u32 s22, s22, \offset
    s_add_co_u32 s22, s22, s3
    s_mov_b32 s23, 0
    s_add_nc_u64 s[20:21], s[20:21], s[22:23]
    s_lshl_b64 s[20:21], s[20:21], 2
    s_add_nc_u64 s[\base:\base+1], s[\base:\base+1], s[20:21]
.endm
    move 4, s13, s14, s15
    move 6, s16, s17, s18
    s_sub_co_i32 s8, s12, s3                        // columns left
    s_cmp_lt_i32 s8, 512
    s_cbranch_scc1 .Ltail
    v_lshlrev_b32 v1, 4, v0
    copy_512_columns
    s_endpgm
.Ltail:
    copy_columns s8
.Lend:
    s_endpgm
zrt_end
