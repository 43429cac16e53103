"""Vector opcodes: gfx12, gfx11, mnemonic, operands, flags, facts. See rows.py and encodings/vector.py.

Operands and flags of VOP1, VOP2 and VOPC are those of their long forms in VOP3.
"""

ROWS = {
    "VOP1": """
00 00 v_nop - any
01 01 v_mov_b32 v1,b32 dpp
02 02 v_readfirstlane_b32 D0,VL e32
03 03 v_cvt_i32_f64 v1,f64 m1 c o
04 04 v_cvt_f64_i32 v2,b32 c o
05 05 v_cvt_f32_i32 v1,b32 c o dpp
06 06 v_cvt_f32_u32 v1,b32 c o dpp
07 07 v_cvt_u32_f32 v1,b32 m1 c o dpp
08 08 v_cvt_i32_f32 v1,b32 m1 c o dpp
0a 0a v_cvt_f16_f32 h1,b32 m1 c o dpp
0b 0b v_cvt_f32_f16 v1,hf m1 c o dpp
0c 0c v_cvt_nearest_i32_f32 v1,b32 m1 c dpp
0d 0d v_cvt_floor_i32_f32 v1,b32 m1 c dpp
0e 0e v_cvt_off_f32_i4 v1,b32 c o dpp
0f 0f v_cvt_f32_f64 v1,f64 m1 c o
10 10 v_cvt_f64_f32 v2,b32 m1 c o
11 11 v_cvt_f32_ubyte0 v1,b32 c o dpp
12 12 v_cvt_f32_ubyte1 v1,b32 c o dpp
13 13 v_cvt_f32_ubyte2 v1,b32 c o dpp
14 14 v_cvt_f32_ubyte3 v1,b32 c o dpp
15 15 v_cvt_u32_f64 v1,f64 m1 c o
16 16 v_cvt_f64_u32 v2,b32 c o
17 17 v_trunc_f64 v2,f64 m1 c o
18 18 v_ceil_f64 v2,f64 m1 c o
19 19 v_rndne_f64 v2,f64 m1 c o
1a 1a v_floor_f64 v2,f64 m1 c o
1b 1b v_pipeflush - any
1c 1c v_mov_b16 h1,hi s1001 dpp real
20 20 v_fract_f32 v1,b32 m1 c o dpp
21 21 v_trunc_f32 v1,b32 m1 c o dpp
22 22 v_ceil_f32 v1,b32 m1 c o dpp
23 23 v_rndne_f32 v1,b32 m1 c o dpp
24 24 v_floor_f32 v1,b32 m1 c o dpp
25 25 v_exp_f32 v1,b32 m1 c o dpp %trans
27 27 v_log_f32 v1,b32 m1 c o dpp %trans
2a 2a v_rcp_f32 v1,b32 m1 c o dpp %trans
2b 2b v_rcp_iflag_f32 v1,b32 m1 c o dpp %trans
2e 2e v_rsq_f32 v1,b32 m1 c o dpp %trans
2f 2f v_rcp_f64 v2,f64 m1 c o %trans
31 31 v_rsq_f64 v2,f64 m1 c o %trans
33 33 v_sqrt_f32 v1,b32 m1 c o dpp %trans
34 34 v_sqrt_f64 v2,f64 m1 c o %trans
35 35 v_sin_f32 v1,b32 m1 c o dpp %trans
36 36 v_cos_f32 v1,b32 m1 c o dpp %trans
37 37 v_not_b32 v1,b32 dpp
38 38 v_bfrev_b32 v1,b32 dpp
39 39 v_clz_i32_u32 v1,b32 dpp
3a 3a v_ctz_i32_b32 v1,b32 dpp
3b 3b v_cls_i32 v1,b32 dpp
3c 3c v_frexp_exp_i32_f64 v1,f64 m1 c o
3d 3d v_frexp_mant_f64 v2,f64 m1 c o
3e 3e v_fract_f64 v2,f64 m1 c o
3f 3f v_frexp_exp_i32_f32 v1,b32 m1 c dpp
40 40 v_frexp_mant_f32 v1,b32 m1 c o dpp
42 42 v_movreld_b32 v1,b32 dpp <m0
43 43 v_movrels_b32 v1,V1 dpp <m0
44 44 v_movrelsd_b32 v1,V1 dpp <m0
48 48 v_movrelsd_2_b32 v1,V1 dpp <m0
50 50 v_cvt_f16_u16 h1,hi c o dpp
51 51 v_cvt_f16_i16 h1,hi c o dpp
52 52 v_cvt_u16_f16 h1,hf m1 c o dpp
53 53 v_cvt_i16_f16 h1,hf m1 c o dpp
54 54 v_rcp_f16 h1,hf m1 c o dpp %trans
55 55 v_sqrt_f16 h1,hf m1 c o dpp %trans
56 56 v_rsq_f16 h1,hf m1 c o dpp %trans
57 57 v_log_f16 h1,hf m1 c o dpp %trans
58 58 v_exp_f16 h1,hf m1 c o dpp %trans
59 59 v_frexp_mant_f16 h1,hf m1 c o dpp
5a 5a v_frexp_exp_i16_f16 h1,hf m1 c o dpp
5b 5b v_floor_f16 h1,hf m1 c o dpp
5c 5c v_ceil_f16 h1,hf m1 c o dpp
5d 5d v_trunc_f16 h1,hf m1 c o dpp
5e 5e v_rndne_f16 h1,hf m1 c o dpp
5f 5f v_fract_f16 h1,hf m1 c o dpp
60 60 v_sin_f16 h1,hf m1 c o dpp %trans
61 61 v_cos_f16 h1,hf m1 c o dpp %trans
62 62 v_sat_pk_u8_i16 h1,b32 dpp
63 63 v_cvt_norm_i16_f16 h1,hf m1 c o dpp
64 64 v_cvt_norm_u16_f16 h1,hf m1 c o dpp
65 65 v_swap_b32 v1,V1 e32 <dst >src
66 66 v_swap_b16 h1,hv e32 real <dst >src
67 67 v_permlane64_b32 v1,V1 e32 !permlane
68 68 v_swaprel_b32 v1,V1 e32 <dst >src <m0
69 69 v_not_b16 h1,hi dpp
6a 6a v_cvt_i32_i16 v1,hi dpp
6b 6b v_cvt_u32_u16 v1,hi dpp
6c  - v_cvt_f32_fp8 v1,b32 byte0 dpp
6d  - v_cvt_f32_bf8 v1,b32 byte0 dpp
6e  - v_cvt_pk_f32_fp8 v2,hf x1 s1001
6f  - v_cvt_pk_f32_bf8 v2,hf x1 s1001
""",
    "VOP2": """
01 01 v_cndmask_b32 v1,b32,b32,M m3 dpp
02  - v_add_f64 v2,f64,f64 m3 c o
 - 02 v_dot2acc_f32_f16 v1,b32,b32 m3 dpp e32 <dst
03 03 v_add_f32 v1,b32,b32 m3 c o dpp
04 04 v_sub_f32 v1,b32,b32 m3 c o dpp
05 05 v_subrev_f32 v1,b32,b32 m3 c o dpp
06  - v_mul_f64 v2,f64,f64 m3 c o
 - 06 v_fmac_dx9_zero_f32 v1,b32,b32 m3 c o <dst
07 07 v_mul_dx9_zero_f32 v1,b32,b32 m3 c o dpp
08 08 v_mul_f32 v1,b32,b32 m3 c o dpp
09 09 v_mul_i32_i24 v1,b32,b32 c dpp
0a 0a v_mul_hi_i32_i24 v1,b32,b32 dpp
0b 0b v_mul_u32_u24 v1,b32,b32 c dpp
0c 0c v_mul_hi_u32_u24 v1,b32,b32 dpp
0d  - v_min_num_f64 v2,f64,f64 m3 c o
0e  - v_max_num_f64 v2,f64,f64 m3 c o
 - 0f v_min_f32 v1,b32,b32 m3 c o dpp
 - 10 v_max_f32 v1,b32,b32 m3 c o dpp
11 11 v_min_i32 v1,b32,b32 dpp
12 12 v_max_i32 v1,b32,b32 dpp
13 13 v_min_u32 v1,b32,b32 dpp
14 14 v_max_u32 v1,b32,b32 dpp
15  - v_min_num_f32 v1,b32,b32 m3 c o dpp
16  - v_max_num_f32 v1,b32,b32 m3 c o dpp
18 18 v_lshlrev_b32 v1,b32,b32 dpp
19 19 v_lshrrev_b32 v1,b32,b32 dpp
1a 1a v_ashrrev_i32 v1,b32,b32 dpp
1b 1b v_and_b32 v1,b32,b32 dpp
1c 1c v_or_b32 v1,b32,b32 dpp
1d 1d v_xor_b32 v1,b32,b32 dpp
1e 1e v_xnor_b32 v1,b32,b32 dpp
1f  - v_lshlrev_b64 v2,b32,i64 !one_scalar
20 20 v_add_co_ci_u32 v1,+MD,b32,b32,M c dpp
21 21 v_sub_co_ci_u32 v1,+MD,b32,b32,M c dpp
22 22 v_subrev_co_ci_u32 v1,+MD,b32,b32,M c dpp
25 25 v_add_nc_u32 v1,b32,b32 c dpp
26 26 v_sub_nc_u32 v1,b32,b32 c dpp
27 27 v_subrev_nc_u32 v1,b32,b32 c dpp
2b 2b v_fmac_f32 v1,b32,b32 m3 c o dpp <dst
2c 2c v_fmamk_f32 v1,b32,K,b32 e32
2d 2d v_fmaak_f32 v1,b32,b32,K e32
2f 2f v_cvt_pk_rtz_f16_f32 v1,b32,b32 m3 c o dpp
30  - v_min_num_f16 h1,hf,hf m3 c o dpp
31  - v_max_num_f16 h1,hf,hf m3 c o dpp
32 32 v_add_f16 h1,hf,hf m3 c o dpp
33 33 v_sub_f16 h1,hf,hf m3 c o dpp
34 34 v_subrev_f16 h1,hf,hf m3 c o dpp
35 35 v_mul_f16 h1,hf,hf m3 c o dpp
36 36 v_fmac_f16 h1,hf,hf m3 c o r11w1 dpp <dst
37 37 v_fmamk_f16 h1,hf,K,hf e32
38 38 v_fmaak_f16 h1,hf,hf,K e32
 - 39 v_max_f16 h1,hf,hf m3 c o dpp
 - 3a v_min_f16 h1,hf,hf m3 c o dpp
3b 3b v_ldexp_f16 h1,hf,hf m1 x2 c o dpp
3c 3c v_pk_fmac_f16 v1,b32,b32 e32 <dst
""",
    "VOPC": """
 - 00 v_cmp_f_f16 MD,hf,hf m3 c dpp
01 01 v_cmp_{lt,eq,le,gt,lg,ge,o,u,nge,nlg,ngt,nle,neq,nlt}_f16 MD,hf,hf m3 c dpp
 - 0f v_cmp_t_f16 MD,hf,hf m3 c dpp
 - 10 v_cmp_f_f32 MD,b32,b32 m3 c dpp
11 11 v_cmp_{lt,eq,le,gt,lg,ge,o,u,nge,nlg,ngt,nle,neq,nlt}_f32 MD,b32,b32 m3 c dpp
 - 1f v_cmp_t_f32 MD,b32,b32 m3 c dpp
 - 20 v_cmp_f_f64 MD,f64,f64 m3 c
21 21 v_cmp_{lt,eq,le,gt,lg,ge,o,u,nge,nlg,ngt,nle,neq,nlt}_f64 MD,f64,f64 m3 c
 - 2f v_cmp_t_f64 MD,f64,f64 m3 c
31 31 v_cmp_{lt,eq,le,gt,ne,ge}_i16 MD,hi,hi dpp
39 39 v_cmp_{lt,eq,le,gt,ne,ge}_u16 MD,hi,hi dpp
 - 40 v_cmp_f_i32 MD,b32,b32 dpp
41 41 v_cmp_{lt,eq,le,gt,ne,ge}_i32 MD,b32,b32 dpp
 - 47 v_cmp_t_i32 MD,b32,b32 dpp
 - 48 v_cmp_f_u32 MD,b32,b32 dpp
49 49 v_cmp_{lt,eq,le,gt,ne,ge}_u32 MD,b32,b32 dpp
 - 4f v_cmp_t_u32 MD,b32,b32 dpp
 - 50 v_cmp_f_i64 MD,i64,i64
51 51 v_cmp_{lt,eq,le,gt,ne,ge}_i64 MD,i64,i64
 - 57 v_cmp_t_i64 MD,i64,i64
 - 58 v_cmp_f_u64 MD,i64,i64
59 59 v_cmp_{lt,eq,le,gt,ne,ge}_u64 MD,i64,i64
 - 5f v_cmp_t_u64 MD,i64,i64
7d 7d v_cmp_class_f16 MD,hf,hf m3 dpp
7e 7e v_cmp_class_f32 MD,b32,b32 m1 dpp
7f 7f v_cmp_class_f64 MD,f64,b32 m1
fe fe v_cmpx_class_f32 no,b32,b32 m1 x2 dpp
ff ff v_cmpx_class_f64 no,f64,b32 m1 x2
""",
    "VOP3": """
209 209 v_fma_dx9_zero_f32 v1,b32,b32,b32 m7 c o
20a 20a v_mad_i32_i24 v1,b32,b32,b32 c dpp
20b 20b v_mad_u32_u24 v1,b32,b32,b32 c dpp
20c 20c v_cubeid_f32 v1,b32,b32,b32 m7 c o dpp
20d 20d v_cubesc_f32 v1,b32,b32,b32 m7 c o dpp
20e 20e v_cubetc_f32 v1,b32,b32,b32 m7 c o dpp
20f 20f v_cubema_f32 v1,b32,b32,b32 m7 c o dpp
210 210 v_bfe_u32 v1,b32,b32,b32 dpp
211 211 v_bfe_i32 v1,b32,b32,b32 dpp
212 212 v_bfi_b32 v1,b32,b32,b32 dpp
213 213 v_fma_f32 v1,b32,b32,b32 m7 c o dpp
214 214 v_fma_f64 v2,f64,f64,f64 m7 c o
215 215 v_lerp_u8 v1,b32,b32,b32 dpp
216 216 v_alignbit_b32 v1,b32,b32,hi x7 c s1111 dpp
217 217 v_alignbyte_b32 v1,b32,b32,hi x7 c s1111 dpp
218 218 v_mullit_f32 v1,b32,b32,b32 m7 c o dpp
  - 219 v_min3_f32 v1,b32,b32,b32 m7 c o dpp
21a 21a v_min3_i32 v1,b32,b32,b32 dpp
21b 21b v_min3_u32 v1,b32,b32,b32 dpp
  - 21c v_max3_f32 v1,b32,b32,b32 m7 c o dpp
21d 21d v_max3_i32 v1,b32,b32,b32 dpp
21e 21e v_max3_u32 v1,b32,b32,b32 dpp
  - 21f v_med3_f32 v1,b32,b32,b32 m7 c o dpp
220 220 v_med3_i32 v1,b32,b32,b32 dpp
221 221 v_med3_u32 v1,b32,b32,b32 dpp
222 222 v_sad_u8 v1,b32,b32,b32 c dpp
223 223 v_sad_hi_u8 v1,b32,b32,b32 c dpp
224 224 v_sad_u16 v1,b32,b32,b32 c dpp
225 225 v_sad_u32 v1,b32,b32,b32 c dpp
226 226 v_cvt_pk_u8_f32 v1,b32,b32,b32 m1 x6 c dpp
227 227 v_div_fixup_f32 v1,b32,b32,b32 m7 c o
228 228 v_div_fixup_f64 v2,f64,f64,f64 m7 c o
229   - v_min3_num_f32 v1,b32,b32,b32 m7 c o dpp
22a   - v_max3_num_f32 v1,b32,b32,b32 m7 c o dpp
22b   - v_min3_num_f16 h1,hf,hf,hf m7 c o s1111 dpp
22c   - v_max3_num_f16 h1,hf,hf,hf m7 c o s1111 dpp
22d   - v_minimum3_f32 v1,b32,b32,b32 m7 c o dpp
22e   - v_maximum3_f32 v1,b32,b32,b32 m7 c o dpp
22f   - v_minimum3_f16 h1,hf,hf,hf m7 c o s1111 dpp
230   - v_maximum3_f16 h1,hf,hf,hf m7 c o s1111 dpp
231   - v_med3_num_f32 v1,b32,b32,b32 m7 c o dpp
232   - v_med3_num_f16 h1,hf,hf,hf m7 c o s1111 dpp
237 237 v_div_fmas_f32 v1,b32,b32,b32 m7 c o <vcc
238 238 v_div_fmas_f64 v2,f64,f64,f64 m7 c o <vcc
239 239 v_msad_u8 v1,b32,b32,b32 c dpp
23a 23a v_qsad_pk_u16_u8 v2,i64,b32,i64 c
23b 23b v_mqsad_pk_u16_u8 v2,i64,b32,i64 c
23d 23d v_mqsad_u32_u8 v4,i64,b32,V4 c
240 240 v_xor3_b32 v1,b32,b32,b32 dpp
241 241 v_mad_u16 h1,hi,hi,hi x7 c s1111 dpp
244 244 v_perm_b32 v1,b32,b32,b32 dpp
245 245 v_xad_u32 v1,b32,b32,b32 dpp
246 246 v_lshl_add_u32 v1,b32,b32,b32 dpp
247 247 v_add_lshl_u32 v1,b32,b32,b32 dpp
248 248 v_fma_f16 h1,hf,hf,hf m7 c o s1111 dpp
  - 249 v_min3_f16 h1,hf,hf,hf m7 c o s1111 dpp
24a 24a v_min3_i16 h1,hi,hi,hi x7 c s1111 dpp
24b 24b v_min3_u16 h1,hi,hi,hi x7 c s1111 dpp
  - 24c v_max3_f16 h1,hf,hf,hf m7 c o s1111 dpp
24d 24d v_max3_i16 h1,hi,hi,hi x7 c s1111 dpp
24e 24e v_max3_u16 h1,hi,hi,hi x7 c s1111 dpp
  - 24f v_med3_f16 h1,hf,hf,hf m7 c o s1111 dpp
250 250 v_med3_i16 h1,hi,hi,hi x7 c s1111 dpp
251 251 v_med3_u16 h1,hi,hi,hi x7 c s1111 dpp
253 253 v_mad_i16 h1,hi,hi,hi x7 c s1111 dpp
254 254 v_div_fixup_f16 h1,hf,hf,hf m7 c o s1111 dpp
255 255 v_add3_u32 v1,b32,b32,b32 dpp
256 256 v_lshl_or_b32 v1,b32,b32,b32 dpp
257 257 v_and_or_b32 v1,b32,b32,b32 dpp
258 258 v_or3_b32 v1,b32,b32,b32 dpp
259 259 v_mad_u32_u16 v1,hi,hi,b32 x7 c s1111 dpp
25a 25a v_mad_i32_i16 v1,hi,hi,b32 x7 c s1111 dpp
25b 25b v_permlane16_b32 v1,V1,s32,s32 s11ii !permlane
25c 25c v_permlanex16_b32 v1,V1,s32,s32 s11ii !permlane
25d 25d v_cndmask_b16 h1,hi,hi,M m3 rhh0h dpp
  - 25e v_maxmin_f32 v1,b32,b32,b32 m7 c o dpp
  - 25f v_minmax_f32 v1,b32,b32,b32 m7 c o dpp
  - 260 v_maxmin_f16 h1,hf,hf,hf m7 c o s1111 dpp
  - 261 v_minmax_f16 h1,hf,hf,hf m7 c o s1111 dpp
262 262 v_maxmin_u32 v1,b32,b32,b32 dpp
263 263 v_minmax_u32 v1,b32,b32,b32 dpp
264 264 v_maxmin_i32 v1,b32,b32,b32 dpp
265 265 v_minmax_i32 v1,b32,b32,b32 dpp
266 266 v_dot2_f16_f16 h1,h2,h2,hf m7 szz11 dpp
267 267 v_dot2_bf16_bf16 h1,y2,y2,hy m7 szz11 dpp
268   - v_minmax_num_f32 v1,b32,b32,b32 m7 c o dpp
269   - v_maxmin_num_f32 v1,b32,b32,b32 m7 c o dpp
26a   - v_minmax_num_f16 h1,hf,hf,hf m7 c o s1111 dpp
26b   - v_maxmin_num_f16 h1,hf,hf,hf m7 c o s1111 dpp
26c   - v_minimummaximum_f32 v1,b32,b32,b32 m7 c o dpp
26d   - v_maximumminimum_f32 v1,b32,b32,b32 m7 c o dpp
26e   - v_minimummaximum_f16 h1,hf,hf,hf m7 c o s1111 dpp
26f   - v_maximumminimum_f16 h1,hf,hf,hf m7 c o s1111 dpp
280   - v_s_exp_f32 DX,s32 m1 c o %trans
281   - v_s_exp_f16 DX,sf16 m1 c o %trans
282   - v_s_log_f32 DX,s32 m1 c o %trans
283   - v_s_log_f16 DX,sf16 m1 c o %trans
284   - v_s_rcp_f32 DX,s32 m1 c o %trans
285   - v_s_rcp_f16 DX,sf16 m1 c o %trans
286   - v_s_rsq_f32 DX,s32 m1 c o %trans
287   - v_s_rsq_f16 DX,sf16 m1 c o %trans
288   - v_s_sqrt_f32 DX,s32 m1 c o %trans
289   - v_s_sqrt_f16 DX,sf16 m1 c o %trans
2fc 2fc v_div_scale_f32 v1,+MD,b32,b32,b32 n7 c o
2fd 2fd v_div_scale_f64 v2,+MD,f64,f64,f64 n7 c o
2fe   - v_mad_co_u64_u32 v2,+MD,b32,b32,i64 c
  - 2fe v_mad_u64_u32 v2,+MD,b32,b32,i64 c
2ff   - v_mad_co_i64_i32 v2,+MD,b32,b32,i64 c
  - 2ff v_mad_i64_i32 v2,+MD,b32,b32,i64 c
300 300 v_add_co_u32 v1,+MD,b32,b32 c dpp
301 301 v_sub_co_u32 v1,+MD,b32,b32 c dpp
302 302 v_subrev_co_u32 v1,+MD,b32,b32 c dpp
303 303 v_add_nc_u16 h1,hi,hi x3 c s1101 dpp
304 304 v_sub_nc_u16 h1,hi,hi x3 c s1101 dpp
305 305 v_mul_lo_u16 h1,hi,hi dpp
306 306 v_cvt_pk_i16_f32 v1,b32,b32 m3 c dpp
307 307 v_cvt_pk_u16_f32 v1,b32,b32 m3 c dpp
309 309 v_max_u16 h1,hi,hi dpp
30a 30a v_max_i16 h1,hi,hi dpp
30b 30b v_min_u16 h1,hi,hi dpp
30c 30c v_min_i16 h1,hi,hi dpp
30d 30d v_add_nc_i16 h1,hi,hi x3 c s1101 dpp
30e 30e v_sub_nc_i16 h1,hi,hi x3 c s1101 dpp
30f   - v_permlane16_var_b32 v1,V1,V1 s110i !permlane
310   - v_permlanex16_var_b32 v1,V1,V1 s110i !permlane
311 311 v_pack_b32_f16 v1,hf,hf m3 c s1101 dpp
312 312 v_cvt_pk_norm_i16_f16 v1,hf,hf m3 c s1101 dpp
313 313 v_cvt_pk_norm_u16_f16 v1,hf,hf m3 c s1101 dpp
31c 31c v_ldexp_f32 v1,b32,b32 m1 x2 c o dpp
31d 31d v_bfm_b32 v1,b32,b32 dpp
31e 31e v_bcnt_u32_b32 v1,b32,b32 dpp
31f 31f v_mbcnt_lo_u32_b32 v1,b32,b32 dpp
320 320 v_mbcnt_hi_u32_b32 v1,b32,b32 dpp
321 321 v_cvt_pk_norm_i16_f32 v1,b32,b32 m3 c dpp
322 322 v_cvt_pk_norm_u16_f32 v1,b32,b32 m3 c dpp
323 323 v_cvt_pk_u16_u32 v1,b32,b32 dpp
324 324 v_cvt_pk_i16_i32 v1,b32,b32 dpp
325 325 v_sub_nc_i32 v1,b32,b32 c dpp
326 326 v_add_nc_i32 v1,b32,b32 c dpp
  - 327 v_add_f64 v2,f64,f64 m3 c o
  - 328 v_mul_f64 v2,f64,f64 m3 c o
  - 329 v_min_f64 v2,f64,f64 m3 c o
  - 32a v_max_f64 v2,f64,f64 m3 c o
32b 32b v_ldexp_f64 v2,f64,b32 m1 x2 c o
32c 32c v_mul_lo_u32 v1,b32,b32
32d 32d v_mul_hi_u32 v1,b32,b32
32e 32e v_mul_hi_i32 v1,b32,b32
32f 32f v_trig_preop_f64 v2,f64,b32 m1 x2 c o
338 338 v_lshlrev_b16 h1,hi,hi dpp
339 339 v_lshrrev_b16 h1,hi,hi dpp
33a 33a v_ashrrev_i16 h1,hi,hi dpp
  - 33c v_lshlrev_b64 v2,b32,i64 !one_scalar
33d 33d v_lshrrev_b64 v2,b32,i64 !one_scalar
33e 33e v_ashrrev_i64 v2,b32,i64 !one_scalar
341   - v_minimum_f64 v2,f64,f64 m3 c o
342   - v_maximum_f64 v2,f64,f64 m3 c o
360 360 v_readlane_b32 D0,VL,s32
361 361 v_writelane_b32 v1,SL,s32
362 362 v_and_b16 h1,hi,hi dpp
363 363 v_or_b16 h1,hi,hi dpp
364 364 v_xor_b16 h1,hi,hi dpp
365   - v_minimum_f32 v1,b32,b32 m3 c o dpp
366   - v_maximum_f32 v1,b32,b32 m3 c o dpp
367   - v_minimum_f16 h1,hf,hf m3 c o s1101 dpp
368   - v_maximum_f16 h1,hf,hf m3 c o s1101 dpp
369   - v_cvt_pk_fp8_f32 h1,b32,b32 m3 s1101 dpp
36a   - v_cvt_pk_bf8_f32 h1,b32,b32 m3 s1101 dpp
36b   - v_cvt_sr_fp8_f32 v1,b32,b32 m1 x2 byte2 dpp
36c   - v_cvt_sr_bf8_f32 v1,b32,b32 m1 x2 byte2 dpp
""",
}
