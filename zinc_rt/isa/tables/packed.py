"""VOP3P opcodes: gfx12, gfx11, mnemonic, operands, flags, facts. See rows.py and encodings/packed.py."""

ROWS = {
    "VOP3P": """
00 00 v_pk_mad_i16 v1,b32,b32,b32 packed c
01 01 v_pk_mul_lo_u16 v1,b32,b32 packed c
02 02 v_pk_add_i16 v1,b32,b32 packed c
03 03 v_pk_sub_i16 v1,b32,b32 packed c
04 04 v_pk_lshlrev_b16 v1,b32,b32 packed c
05 05 v_pk_lshrrev_b16 v1,b32,b32 packed c
06 06 v_pk_ashrrev_i16 v1,b32,b32 packed c
07 07 v_pk_max_i16 v1,b32,b32 packed c
08 08 v_pk_min_i16 v1,b32,b32 packed c
09 09 v_pk_mad_u16 v1,b32,b32,b32 packed c
0a 0a v_pk_add_u16 v1,b32,b32 packed c
0b 0b v_pk_sub_u16 v1,b32,b32 packed c
0c 0c v_pk_max_u16 v1,b32,b32 packed c
0d 0d v_pk_min_u16 v1,b32,b32 packed c
0e 0e v_pk_fma_f16 v1,h2,h2,h2 packed c
0f 0f v_pk_add_f16 v1,h2,h2 packed c
10 10 v_pk_mul_f16 v1,h2,h2 packed c
- 11 v_pk_min_f16 v1,h2,h2 packed c
- 12 v_pk_max_f16 v1,h2,h2 packed c
13 13 v_dot2_f32_f16 v1,h2,h2,b32 packed c dpp
16 16 v_dot4_i32_iu8 v1,b32,b32,b32 loose c
17 17 v_dot4_u32_u8 v1,b32,b32,b32 loose c
18 18 v_dot8_i32_iu4 v1,b32,b32,b32 loose c
19 19 v_dot8_u32_u4 v1,b32,b32,b32 loose c
1a 1a v_dot2_f32_bf16 v1,y2,y2,b32 packed c dpp
1b - v_pk_min_num_f16 v1,h2,h2 packed c
1c - v_pk_max_num_f16 v1,h2,h2 packed c
1d - v_pk_minimum_f16 v1,h2,h2 packed c
1e - v_pk_maximum_f16 v1,h2,h2 packed c
20 20 v_fma_mix_f32 v1,f16,f16,f16 mix c dpp y2
21 21 v_fma_mixlo_f16 v1,f16,f16,f16 mix c dpp y2
22 22 v_fma_mixhi_f16 v1,f16,f16,f16 mix c dpp y2
24 - v_dot4_f32_fp8_bf8 v1,b32,b32,b32 l4 h4 dpp y6
25 - v_dot4_f32_bf8_fp8 v1,b32,b32,b32 l4 h4 dpp y6
26 - v_dot4_f32_fp8_fp8 v1,b32,b32,b32 l4 h4 dpp y6
27 - v_dot4_f32_bf8_bf8 v1,b32,b32,b32 l4 h4 dpp y6
- 40 v_wmma_f32_16x16x16_f16 v8/4,V8,V8,C8/4 loose %matrix
- 41 v_wmma_f32_16x16x16_bf16 v8/4,V8,V8,C8/4 loose %matrix
- 42 v_wmma_f16_16x16x16_f16 v8/4,V8,V8,H8/4 packed %matrix
- 43 v_wmma_bf16_16x16x16_bf16 v8/4,V8,V8,Y8/4 packed %matrix
- 44 v_wmma_i32_16x16x16_iu8 v8/4,V4,V4,C8/4 loose c %matrix
- 45 v_wmma_i32_16x16x16_iu4 v8/4,V2,V2,C8/4 loose c %matrix
40 - v_wmma_f32_16x16x16_f16 v8/4,V4/2,V4/2,C8/4 l7 h7 %matrix
41 - v_wmma_f32_16x16x16_bf16 v8/4,V4/2,V4/2,C8/4 l7 h7 %matrix
42 - v_wmma_f16_16x16x16_f16 v4/2,V4/2,V4/2,H4/2 l7 h7 ignores %matrix
43 - v_wmma_bf16_16x16x16_bf16 v4/2,V4/2,V4/2,Y4/2 l7 h7 ignores %matrix
44 - v_wmma_i32_16x16x16_iu8 v8/4,V2/1,V2/1,C8/4 l3 c %matrix
45 - v_wmma_i32_16x16x16_iu4 v8/4,V1,V1,C8/4 l3 c %matrix
46 - v_wmma_f32_16x16x16_fp8_fp8 v8/4,V2/1,V2/1,C8/4 l4 h4 %matrix
47 - v_wmma_f32_16x16x16_fp8_bf8 v8/4,V2/1,V2/1,C8/4 l4 h4 %matrix
48 - v_wmma_f32_16x16x16_bf8_fp8 v8/4,V2/1,V2/1,C8/4 l4 h4 %matrix
49 - v_wmma_f32_16x16x16_bf8_bf8 v8/4,V2/1,V2/1,C8/4 l4 h4 %matrix
4a - v_wmma_i32_16x16x32_iu4 v8/4,V2/1,V2/1,C8/4 l3 c %matrix
50 - v_swmmac_f32_16x16x32_f16 v8/4,V4/2,V8/4,V1 l3 h3 k1 <dst %matrix
51 - v_swmmac_f32_16x16x32_bf16 v8/4,V4/2,V8/4,V1 l3 h3 k1 <dst %matrix
52 - v_swmmac_f16_16x16x32_f16 v4/2,V4/2,V8/4,V1 l3 h3 k1 <dst %matrix
53 - v_swmmac_bf16_16x16x32_bf16 v4/2,V4/2,V8/4,V1 l3 h3 k1 <dst %matrix
54 - v_swmmac_i32_16x16x32_iu8 v8/4,V2/1,V4/2,V1 l3 c k1 <dst %matrix
55 - v_swmmac_i32_16x16x32_iu4 v8/4,V1,V2/1,V1 l3 c k1 <dst %matrix
56 - v_swmmac_i32_16x16x64_iu4 v8/4,V2/1,V4/2,V1 l3 c k0 <dst %matrix
57 - v_swmmac_f32_16x16x32_fp8_fp8 v8/4,V2/1,V4/2,V1 k1 <dst %matrix
58 - v_swmmac_f32_16x16x32_fp8_bf8 v8/4,V2/1,V4/2,V1 k1 <dst %matrix
59 - v_swmmac_f32_16x16x32_bf8_fp8 v8/4,V2/1,V4/2,V1 k1 <dst %matrix
5a - v_swmmac_f32_16x16x32_bf8_bf8 v8/4,V2/1,V4/2,V1 k1 <dst %matrix
""",
}
