"""Vector opcodes: gfx12, gfx11, mnemonic, operands, flags. See rows.py and encodings/vector.py."""

ROWS = {
    "VOP1": """
00 00 v_nop - any
1b 1b v_pipeflush - any
01 01 v_mov_b32_e32 v1,b32 dpp
02 02 v_readfirstlane_b32 D0,VL
03 03 v_cvt_i32_f64_e32 v1,f64
04 04 v_cvt_f64_i32_e32 v2,b32
05 05 v_cvt_f32_i32_e32 v1,b32 dpp
06 06 v_cvt_f32_u32_e32 v1,b32 dpp
07 07 v_cvt_u32_f32_e32 v1,b32 m1 dpp
08 08 v_cvt_i32_f32_e32 v1,b32 m1 dpp
0a  - v_cvt_f16_f32_e32 t1,b32 m1 dpp
 - 0a v_cvt_f16_f32_e32 h1,b32 m1 dpp
0b  - v_cvt_f32_f16_e32 v1,t16 m1 dpp
 - 0b v_cvt_f32_f16_e32 v1,hf m1 dpp
0c 0c v_cvt_nearest_i32_f32_e32 v1,b32 m1 dpp
0d 0d v_cvt_floor_i32_f32_e32 v1,b32 m1 dpp
0e 0e v_cvt_off_f32_i4_e32 v1,b32 dpp
0f 0f v_cvt_f32_f64_e32 v1,f64
10 10 v_cvt_f64_f32_e32 v2,b32
11 11 v_cvt_f32_ubyte0_e32 v1,b32 dpp
12 12 v_cvt_f32_ubyte1_e32 v1,b32 dpp
13 13 v_cvt_f32_ubyte2_e32 v1,b32 dpp
14 14 v_cvt_f32_ubyte3_e32 v1,b32 dpp
15 15 v_cvt_u32_f64_e32 v1,f64
16 16 v_cvt_f64_u32_e32 v2,b32
17 17 v_trunc_f64_e32 v2,f64
18 18 v_ceil_f64_e32 v2,f64
19 19 v_rndne_f64_e32 v2,f64
1a 1a v_floor_f64_e32 v2,f64
 - 1c v_mov_b16_e32 h1,hi x1 dpp
20 20 v_fract_f32_e32 v1,b32 m1 dpp
21 21 v_trunc_f32_e32 v1,b32 m1 dpp
22 22 v_ceil_f32_e32 v1,b32 m1 dpp
23 23 v_rndne_f32_e32 v1,b32 m1 dpp
24 24 v_floor_f32_e32 v1,b32 m1 dpp
25 25 v_exp_f32_e32 v1,b32 m1 dpp
27 27 v_log_f32_e32 v1,b32 m1 dpp
2a 2a v_rcp_f32_e32 v1,b32 m1 dpp
2b 2b v_rcp_iflag_f32_e32 v1,b32 m1 dpp
2e 2e v_rsq_f32_e32 v1,b32 m1 dpp
2f 2f v_rcp_f64_e32 v2,f64
31 31 v_rsq_f64_e32 v2,f64
33 33 v_sqrt_f32_e32 v1,b32 m1 dpp
34 34 v_sqrt_f64_e32 v2,f64
35 35 v_sin_f32_e32 v1,b32 m1 dpp
36 36 v_cos_f32_e32 v1,b32 m1 dpp
37 37 v_not_b32_e32 v1,b32 dpp
38 38 v_bfrev_b32_e32 v1,b32 dpp
39 39 v_clz_i32_u32_e32 v1,b32 dpp
3a 3a v_ctz_i32_b32_e32 v1,b32 dpp
3b 3b v_cls_i32_e32 v1,b32 dpp
3c 3c v_frexp_exp_i32_f64_e32 v1,f64
3d 3d v_frexp_mant_f64_e32 v2,f64
3e 3e v_fract_f64_e32 v2,f64
3f 3f v_frexp_exp_i32_f32_e32 v1,b32 m1 dpp
40 40 v_frexp_mant_f32_e32 v1,b32 m1 dpp
42 42 v_movreld_b32_e32 v1,b32 dpp
43 43 v_movrels_b32_e32 v1,V1 dpp
44 44 v_movrelsd_b32_e32 v1,V1 dpp
48 48 v_movrelsd_2_b32_e32 v1,V1 dpp
50  - v_cvt_f16_u16_e32 t1,ti16 dpp
 - 50 v_cvt_f16_u16_e32 h1,hi x1 dpp
51  - v_cvt_f16_i16_e32 t1,ti16 dpp
 - 51 v_cvt_f16_i16_e32 h1,hi x1 dpp
52  - v_cvt_u16_f16_e32 t1,t16 m1 dpp
 - 52 v_cvt_u16_f16_e32 h1,hf m1 dpp
53  - v_cvt_i16_f16_e32 t1,t16 m1 dpp
 - 53 v_cvt_i16_f16_e32 h1,hf m1 dpp
54  - v_rcp_f16_e32 t1,t16 m1 dpp
 - 54 v_rcp_f16_e32 h1,hf m1 dpp
55  - v_sqrt_f16_e32 t1,t16 m1 dpp
 - 55 v_sqrt_f16_e32 h1,hf m1 dpp
56  - v_rsq_f16_e32 t1,t16 m1 dpp
 - 56 v_rsq_f16_e32 h1,hf m1 dpp
57  - v_log_f16_e32 t1,t16 m1 dpp
 - 57 v_log_f16_e32 h1,hf m1 dpp
58  - v_exp_f16_e32 t1,t16 m1 dpp
 - 58 v_exp_f16_e32 h1,hf m1 dpp
59  - v_frexp_mant_f16_e32 t1,t16 m1 dpp
 - 59 v_frexp_mant_f16_e32 h1,hf m1 dpp
5a  - v_frexp_exp_i16_f16_e32 t1,t16 m1 dpp
 - 5a v_frexp_exp_i16_f16_e32 h1,hf m1 dpp
5b  - v_floor_f16_e32 t1,t16 m1 dpp
 - 5b v_floor_f16_e32 h1,hf m1 dpp
5c  - v_ceil_f16_e32 t1,t16 m1 dpp
 - 5c v_ceil_f16_e32 h1,hf m1 dpp
5d  - v_trunc_f16_e32 t1,t16 m1 dpp
 - 5d v_trunc_f16_e32 h1,hf m1 dpp
5e  - v_rndne_f16_e32 t1,t16 m1 dpp
 - 5e v_rndne_f16_e32 h1,hf m1 dpp
5f  - v_fract_f16_e32 t1,t16 m1 dpp
 - 5f v_fract_f16_e32 h1,hf m1 dpp
60  - v_sin_f16_e32 t1,t16 m1 dpp
 - 60 v_sin_f16_e32 h1,hf m1 dpp
61  - v_cos_f16_e32 t1,t16 m1 dpp
 - 61 v_cos_f16_e32 h1,hf m1 dpp
62  - v_sat_pk_u8_i16_e32 t1,b32 dpp
 - 62 v_sat_pk_u8_i16_e32 h1,b32 x1 dpp
63  - v_cvt_norm_i16_f16_e32 t1,t16 m1 dpp
 - 63 v_cvt_norm_i16_f16_e32 h1,hf m1 dpp
64  - v_cvt_norm_u16_f16_e32 t1,t16 m1 dpp
 - 64 v_cvt_norm_u16_f16_e32 h1,hf m1 dpp
65 65 v_swap_b32 v1,V1
 - 66 v_swap_b16 h1,hi
67 67 v_permlane64_b32 v1,V1
68 68 v_swaprel_b32 v1,V1
69  - v_not_b16_e32 t1,ti16 dpp
 - 69 v_not_b16_e32 h1,hi x1 dpp
6a  - v_cvt_i32_i16_e32 v1,ti16 dpp
 - 6a v_cvt_i32_i16_e32 v1,hi x1 dpp
6b  - v_cvt_u32_u16_e32 v1,ti16 dpp
 - 6b v_cvt_u32_u16_e32 v1,hi x1 dpp
6c  - v_cvt_f32_fp8_e32 v1,b32 dpp
6d  - v_cvt_f32_bf8_e32 v1,b32 dpp
6e  - v_cvt_pk_f32_fp8_e32 v2,t16
6f  - v_cvt_pk_f32_bf8_e32 v2,t16
""",
    "VOP2": """
01 01 v_cndmask_b32_e32 v1,b32,v1,vcc m3 dpp
02  - v_add_f64_e32 v2,f64,v2
 - 02 v_dot2acc_f32_f16 v1,b32,v1 m3 dpp
03 03 v_add_f32_e32 v1,b32,v1 m3 dpp
04 04 v_sub_f32_e32 v1,b32,v1 m3 dpp
05 05 v_subrev_f32_e32 v1,b32,v1 m3 dpp
06  - v_mul_f64_e32 v2,f64,v2
 - 06 v_fmac_dx9_zero_f32_e32 v1,b32,v1
07 07 v_mul_dx9_zero_f32_e32 v1,b32,v1 m3 dpp
08 08 v_mul_f32_e32 v1,b32,v1 m3 dpp
09 09 v_mul_i32_i24_e32 v1,b32,v1 dpp
0a 0a v_mul_hi_i32_i24_e32 v1,b32,v1 dpp
0b 0b v_mul_u32_u24_e32 v1,b32,v1 dpp
0c 0c v_mul_hi_u32_u24_e32 v1,b32,v1 dpp
0d  - v_min_num_f64_e32 v2,f64,v2
0e  - v_max_num_f64_e32 v2,f64,v2
 - 0f v_min_f32_e32 v1,b32,v1 m3 dpp
 - 10 v_max_f32_e32 v1,b32,v1 m3 dpp
11 11 v_min_i32_e32 v1,b32,v1 dpp
12 12 v_max_i32_e32 v1,b32,v1 dpp
13 13 v_min_u32_e32 v1,b32,v1 dpp
14 14 v_max_u32_e32 v1,b32,v1 dpp
15  - v_min_num_f32_e32 v1,b32,v1 m3 dpp
16  - v_max_num_f32_e32 v1,b32,v1 m3 dpp
18 18 v_lshlrev_b32_e32 v1,b32,v1 dpp
19 19 v_lshrrev_b32_e32 v1,b32,v1 dpp
1a 1a v_ashrrev_i32_e32 v1,b32,v1 dpp
1b 1b v_and_b32_e32 v1,b32,v1 dpp
1c 1c v_or_b32_e32 v1,b32,v1 dpp
1d 1d v_xor_b32_e32 v1,b32,v1 dpp
1e 1e v_xnor_b32_e32 v1,b32,v1 dpp
1f  - v_lshlrev_b64_e32 v2,b32,v2
20 20 v_add_co_ci_u32_e32 v1,vcc,b32,v1,vcc dpp
21 21 v_sub_co_ci_u32_e32 v1,vcc,b32,v1,vcc dpp
22 22 v_subrev_co_ci_u32_e32 v1,vcc,b32,v1,vcc dpp
25 25 v_add_nc_u32_e32 v1,b32,v1 dpp
26 26 v_sub_nc_u32_e32 v1,b32,v1 dpp
27 27 v_subrev_nc_u32_e32 v1,b32,v1 dpp
2b 2b v_fmac_f32_e32 v1,b32,v1 m3 dpp
2c 2c v_fmamk_f32 v1,b32,K,v1
2d 2d v_fmaak_f32 v1,b32,v1,K
2f 2f v_cvt_pk_rtz_f16_f32_e32 v1,b32,v1 m3 dpp
30  - v_min_num_f16_e32 t1,t16,T1 m3 dpp
31  - v_max_num_f16_e32 t1,t16,T1 m3 dpp
32  - v_add_f16_e32 t1,t16,T1 m3 dpp
 - 32 v_add_f16_e32 h1,hf,h1 m3 dpp
33  - v_sub_f16_e32 t1,t16,T1 m3 dpp
 - 33 v_sub_f16_e32 h1,hf,h1 m3 dpp
34  - v_subrev_f16_e32 t1,t16,T1 m3 dpp
 - 34 v_subrev_f16_e32 h1,hf,h1 m3 dpp
35  - v_mul_f16_e32 t1,t16,T1 m3 dpp
 - 35 v_mul_f16_e32 h1,hf,h1 m3 dpp
36  - v_fmac_f16_e32 t1,t16,T1 m3 dpp
 - 36 v_fmac_f16_e32 h1,hf,h1 m3 dpp
37  - v_fmamk_f16 t1,t16,K,T1
 - 37 v_fmamk_f16 h1,hf,K,h1
38  - v_fmaak_f16 t1,t16,T1,K
 - 38 v_fmaak_f16 h1,hf,h1,K
 - 39 v_max_f16_e32 h1,hf,h1 m3 dpp
 - 3a v_min_f16_e32 h1,hf,h1 m3 dpp
3b  - v_ldexp_f16_e32 t1,t16,T1 m1 x2 dpp
 - 3b v_ldexp_f16_e32 h1,hf,h1 m1 x2 dpp
3c 3c v_pk_fmac_f16 v1,b32,v1
""",
    "VOPC": """
 - 00 v_cmp_f_f16_e32 vcc,hf,h1 m3 dpp
01  - v_cmp_lt_f16_e32 vcc,t16,T1 m3 dpp
 - 01 v_cmp_lt_f16_e32 vcc,hf,h1 m3 dpp
02  - v_cmp_eq_f16_e32 vcc,t16,T1 m3 dpp
 - 02 v_cmp_eq_f16_e32 vcc,hf,h1 m3 dpp
03  - v_cmp_le_f16_e32 vcc,t16,T1 m3 dpp
 - 03 v_cmp_le_f16_e32 vcc,hf,h1 m3 dpp
04  - v_cmp_gt_f16_e32 vcc,t16,T1 m3 dpp
 - 04 v_cmp_gt_f16_e32 vcc,hf,h1 m3 dpp
05  - v_cmp_lg_f16_e32 vcc,t16,T1 m3 dpp
 - 05 v_cmp_lg_f16_e32 vcc,hf,h1 m3 dpp
06  - v_cmp_ge_f16_e32 vcc,t16,T1 m3 dpp
 - 06 v_cmp_ge_f16_e32 vcc,hf,h1 m3 dpp
07  - v_cmp_o_f16_e32 vcc,t16,T1 m3 dpp
 - 07 v_cmp_o_f16_e32 vcc,hf,h1 m3 dpp
08  - v_cmp_u_f16_e32 vcc,t16,T1 m3 dpp
 - 08 v_cmp_u_f16_e32 vcc,hf,h1 m3 dpp
09  - v_cmp_nge_f16_e32 vcc,t16,T1 m3 dpp
 - 09 v_cmp_nge_f16_e32 vcc,hf,h1 m3 dpp
0a  - v_cmp_nlg_f16_e32 vcc,t16,T1 m3 dpp
 - 0a v_cmp_nlg_f16_e32 vcc,hf,h1 m3 dpp
0b  - v_cmp_ngt_f16_e32 vcc,t16,T1 m3 dpp
 - 0b v_cmp_ngt_f16_e32 vcc,hf,h1 m3 dpp
0c  - v_cmp_nle_f16_e32 vcc,t16,T1 m3 dpp
 - 0c v_cmp_nle_f16_e32 vcc,hf,h1 m3 dpp
0d  - v_cmp_neq_f16_e32 vcc,t16,T1 m3 dpp
 - 0d v_cmp_neq_f16_e32 vcc,hf,h1 m3 dpp
0e  - v_cmp_nlt_f16_e32 vcc,t16,T1 m3 dpp
 - 0e v_cmp_nlt_f16_e32 vcc,hf,h1 m3 dpp
 - 0f v_cmp_t_f16_e32 vcc,hf,h1 m3 dpp
 - 10 v_cmp_f_f32_e32 vcc,b32,v1 m3 dpp
11 11 v_cmp_lt_f32_e32 vcc,b32,v1 m3 dpp
12 12 v_cmp_eq_f32_e32 vcc,b32,v1 m3 dpp
13 13 v_cmp_le_f32_e32 vcc,b32,v1 m3 dpp
14 14 v_cmp_gt_f32_e32 vcc,b32,v1 m3 dpp
15 15 v_cmp_lg_f32_e32 vcc,b32,v1 m3 dpp
16 16 v_cmp_ge_f32_e32 vcc,b32,v1 m3 dpp
17 17 v_cmp_o_f32_e32 vcc,b32,v1 m3 dpp
18 18 v_cmp_u_f32_e32 vcc,b32,v1 m3 dpp
19 19 v_cmp_nge_f32_e32 vcc,b32,v1 m3 dpp
1a 1a v_cmp_nlg_f32_e32 vcc,b32,v1 m3 dpp
1b 1b v_cmp_ngt_f32_e32 vcc,b32,v1 m3 dpp
1c 1c v_cmp_nle_f32_e32 vcc,b32,v1 m3 dpp
1d 1d v_cmp_neq_f32_e32 vcc,b32,v1 m3 dpp
1e 1e v_cmp_nlt_f32_e32 vcc,b32,v1 m3 dpp
 - 1f v_cmp_t_f32_e32 vcc,b32,v1 m3 dpp
 - 20 v_cmp_f_f64_e32 vcc,f64,v2
21 21 v_cmp_lt_f64_e32 vcc,f64,v2
22 22 v_cmp_eq_f64_e32 vcc,f64,v2
23 23 v_cmp_le_f64_e32 vcc,f64,v2
24 24 v_cmp_gt_f64_e32 vcc,f64,v2
25 25 v_cmp_lg_f64_e32 vcc,f64,v2
26 26 v_cmp_ge_f64_e32 vcc,f64,v2
27 27 v_cmp_o_f64_e32 vcc,f64,v2
28 28 v_cmp_u_f64_e32 vcc,f64,v2
29 29 v_cmp_nge_f64_e32 vcc,f64,v2
2a 2a v_cmp_nlg_f64_e32 vcc,f64,v2
2b 2b v_cmp_ngt_f64_e32 vcc,f64,v2
2c 2c v_cmp_nle_f64_e32 vcc,f64,v2
2d 2d v_cmp_neq_f64_e32 vcc,f64,v2
2e 2e v_cmp_nlt_f64_e32 vcc,f64,v2
 - 2f v_cmp_t_f64_e32 vcc,f64,v2
31  - v_cmp_lt_i16_e32 vcc,ti16,T1 dpp
 - 31 v_cmp_lt_i16_e32 vcc,hi,h1 x3 dpp
32  - v_cmp_eq_i16_e32 vcc,ti16,T1 dpp
 - 32 v_cmp_eq_i16_e32 vcc,hi,h1 x3 dpp
33  - v_cmp_le_i16_e32 vcc,ti16,T1 dpp
 - 33 v_cmp_le_i16_e32 vcc,hi,h1 x3 dpp
34  - v_cmp_gt_i16_e32 vcc,ti16,T1 dpp
 - 34 v_cmp_gt_i16_e32 vcc,hi,h1 x3 dpp
35  - v_cmp_ne_i16_e32 vcc,ti16,T1 dpp
 - 35 v_cmp_ne_i16_e32 vcc,hi,h1 x3 dpp
36  - v_cmp_ge_i16_e32 vcc,ti16,T1 dpp
 - 36 v_cmp_ge_i16_e32 vcc,hi,h1 x3 dpp
39  - v_cmp_lt_u16_e32 vcc,ti16,T1 dpp
 - 39 v_cmp_lt_u16_e32 vcc,hi,h1 x3 dpp
3a  - v_cmp_eq_u16_e32 vcc,ti16,T1 dpp
 - 3a v_cmp_eq_u16_e32 vcc,hi,h1 x3 dpp
3b  - v_cmp_le_u16_e32 vcc,ti16,T1 dpp
 - 3b v_cmp_le_u16_e32 vcc,hi,h1 x3 dpp
3c  - v_cmp_gt_u16_e32 vcc,ti16,T1 dpp
 - 3c v_cmp_gt_u16_e32 vcc,hi,h1 x3 dpp
3d  - v_cmp_ne_u16_e32 vcc,ti16,T1 dpp
 - 3d v_cmp_ne_u16_e32 vcc,hi,h1 x3 dpp
3e  - v_cmp_ge_u16_e32 vcc,ti16,T1 dpp
 - 3e v_cmp_ge_u16_e32 vcc,hi,h1 x3 dpp
 - 40 v_cmp_f_i32_e32 vcc,b32,v1 dpp
41 41 v_cmp_lt_i32_e32 vcc,b32,v1 dpp
42 42 v_cmp_eq_i32_e32 vcc,b32,v1 dpp
43 43 v_cmp_le_i32_e32 vcc,b32,v1 dpp
44 44 v_cmp_gt_i32_e32 vcc,b32,v1 dpp
45 45 v_cmp_ne_i32_e32 vcc,b32,v1 dpp
46 46 v_cmp_ge_i32_e32 vcc,b32,v1 dpp
 - 47 v_cmp_t_i32_e32 vcc,b32,v1 dpp
 - 48 v_cmp_f_u32_e32 vcc,b32,v1 dpp
49 49 v_cmp_lt_u32_e32 vcc,b32,v1 dpp
4a 4a v_cmp_eq_u32_e32 vcc,b32,v1 dpp
4b 4b v_cmp_le_u32_e32 vcc,b32,v1 dpp
4c 4c v_cmp_gt_u32_e32 vcc,b32,v1 dpp
4d 4d v_cmp_ne_u32_e32 vcc,b32,v1 dpp
4e 4e v_cmp_ge_u32_e32 vcc,b32,v1 dpp
 - 4f v_cmp_t_u32_e32 vcc,b32,v1 dpp
 - 50 v_cmp_f_i64_e32 vcc,i64,v2
51 51 v_cmp_lt_i64_e32 vcc,i64,v2
52 52 v_cmp_eq_i64_e32 vcc,i64,v2
53 53 v_cmp_le_i64_e32 vcc,i64,v2
54 54 v_cmp_gt_i64_e32 vcc,i64,v2
55 55 v_cmp_ne_i64_e32 vcc,i64,v2
56 56 v_cmp_ge_i64_e32 vcc,i64,v2
 - 57 v_cmp_t_i64_e32 vcc,i64,v2
 - 58 v_cmp_f_u64_e32 vcc,i64,v2
59 59 v_cmp_lt_u64_e32 vcc,i64,v2
5a 5a v_cmp_eq_u64_e32 vcc,i64,v2
5b 5b v_cmp_le_u64_e32 vcc,i64,v2
5c 5c v_cmp_gt_u64_e32 vcc,i64,v2
5d 5d v_cmp_ne_u64_e32 vcc,i64,v2
5e 5e v_cmp_ge_u64_e32 vcc,i64,v2
 - 5f v_cmp_t_u64_e32 vcc,i64,v2
7d  - v_cmp_class_f16_e32 vcc,t16,T1 m3 dpp
 - 7d v_cmp_class_f16_e32 vcc,hf,h1 m3 dpp
7e 7e v_cmp_class_f32_e32 vcc,b32,v1 m1 dpp
7f 7f v_cmp_class_f64_e32 vcc,f64,v1
 - 80 v_cmpx_f_f16_e32 hf,h1 m3 dpp
81  - v_cmpx_lt_f16_e32 t16,T1 m3 dpp
 - 81 v_cmpx_lt_f16_e32 hf,h1 m3 dpp
82  - v_cmpx_eq_f16_e32 t16,T1 m3 dpp
 - 82 v_cmpx_eq_f16_e32 hf,h1 m3 dpp
83  - v_cmpx_le_f16_e32 t16,T1 m3 dpp
 - 83 v_cmpx_le_f16_e32 hf,h1 m3 dpp
84  - v_cmpx_gt_f16_e32 t16,T1 m3 dpp
 - 84 v_cmpx_gt_f16_e32 hf,h1 m3 dpp
85  - v_cmpx_lg_f16_e32 t16,T1 m3 dpp
 - 85 v_cmpx_lg_f16_e32 hf,h1 m3 dpp
86  - v_cmpx_ge_f16_e32 t16,T1 m3 dpp
 - 86 v_cmpx_ge_f16_e32 hf,h1 m3 dpp
87  - v_cmpx_o_f16_e32 t16,T1 m3 dpp
 - 87 v_cmpx_o_f16_e32 hf,h1 m3 dpp
88  - v_cmpx_u_f16_e32 t16,T1 m3 dpp
 - 88 v_cmpx_u_f16_e32 hf,h1 m3 dpp
89  - v_cmpx_nge_f16_e32 t16,T1 m3 dpp
 - 89 v_cmpx_nge_f16_e32 hf,h1 m3 dpp
8a  - v_cmpx_nlg_f16_e32 t16,T1 m3 dpp
 - 8a v_cmpx_nlg_f16_e32 hf,h1 m3 dpp
8b  - v_cmpx_ngt_f16_e32 t16,T1 m3 dpp
 - 8b v_cmpx_ngt_f16_e32 hf,h1 m3 dpp
8c  - v_cmpx_nle_f16_e32 t16,T1 m3 dpp
 - 8c v_cmpx_nle_f16_e32 hf,h1 m3 dpp
8d  - v_cmpx_neq_f16_e32 t16,T1 m3 dpp
 - 8d v_cmpx_neq_f16_e32 hf,h1 m3 dpp
8e  - v_cmpx_nlt_f16_e32 t16,T1 m3 dpp
 - 8e v_cmpx_nlt_f16_e32 hf,h1 m3 dpp
 - 8f v_cmpx_t_f16_e32 hf,h1 m3 dpp
 - 90 v_cmpx_f_f32_e32 b32,v1 m3 dpp
91 91 v_cmpx_lt_f32_e32 b32,v1 m3 dpp
92 92 v_cmpx_eq_f32_e32 b32,v1 m3 dpp
93 93 v_cmpx_le_f32_e32 b32,v1 m3 dpp
94 94 v_cmpx_gt_f32_e32 b32,v1 m3 dpp
95 95 v_cmpx_lg_f32_e32 b32,v1 m3 dpp
96 96 v_cmpx_ge_f32_e32 b32,v1 m3 dpp
97 97 v_cmpx_o_f32_e32 b32,v1 m3 dpp
98 98 v_cmpx_u_f32_e32 b32,v1 m3 dpp
99 99 v_cmpx_nge_f32_e32 b32,v1 m3 dpp
9a 9a v_cmpx_nlg_f32_e32 b32,v1 m3 dpp
9b 9b v_cmpx_ngt_f32_e32 b32,v1 m3 dpp
9c 9c v_cmpx_nle_f32_e32 b32,v1 m3 dpp
9d 9d v_cmpx_neq_f32_e32 b32,v1 m3 dpp
9e 9e v_cmpx_nlt_f32_e32 b32,v1 m3 dpp
 - 9f v_cmpx_t_f32_e32 b32,v1 m3 dpp
 - a0 v_cmpx_f_f64_e32 f64,v2
a1 a1 v_cmpx_lt_f64_e32 f64,v2
a2 a2 v_cmpx_eq_f64_e32 f64,v2
a3 a3 v_cmpx_le_f64_e32 f64,v2
a4 a4 v_cmpx_gt_f64_e32 f64,v2
a5 a5 v_cmpx_lg_f64_e32 f64,v2
a6 a6 v_cmpx_ge_f64_e32 f64,v2
a7 a7 v_cmpx_o_f64_e32 f64,v2
a8 a8 v_cmpx_u_f64_e32 f64,v2
a9 a9 v_cmpx_nge_f64_e32 f64,v2
aa aa v_cmpx_nlg_f64_e32 f64,v2
ab ab v_cmpx_ngt_f64_e32 f64,v2
ac ac v_cmpx_nle_f64_e32 f64,v2
ad ad v_cmpx_neq_f64_e32 f64,v2
ae ae v_cmpx_nlt_f64_e32 f64,v2
 - af v_cmpx_t_f64_e32 f64,v2
b1  - v_cmpx_lt_i16_e32 ti16,T1 dpp
 - b1 v_cmpx_lt_i16_e32 hi,h1 x3 dpp
b2  - v_cmpx_eq_i16_e32 ti16,T1 dpp
 - b2 v_cmpx_eq_i16_e32 hi,h1 x3 dpp
b3  - v_cmpx_le_i16_e32 ti16,T1 dpp
 - b3 v_cmpx_le_i16_e32 hi,h1 x3 dpp
b4  - v_cmpx_gt_i16_e32 ti16,T1 dpp
 - b4 v_cmpx_gt_i16_e32 hi,h1 x3 dpp
b5  - v_cmpx_ne_i16_e32 ti16,T1 dpp
 - b5 v_cmpx_ne_i16_e32 hi,h1 x3 dpp
b6  - v_cmpx_ge_i16_e32 ti16,T1 dpp
 - b6 v_cmpx_ge_i16_e32 hi,h1 x3 dpp
b9  - v_cmpx_lt_u16_e32 ti16,T1 dpp
 - b9 v_cmpx_lt_u16_e32 hi,h1 x3 dpp
ba  - v_cmpx_eq_u16_e32 ti16,T1 dpp
 - ba v_cmpx_eq_u16_e32 hi,h1 x3 dpp
bb  - v_cmpx_le_u16_e32 ti16,T1 dpp
 - bb v_cmpx_le_u16_e32 hi,h1 x3 dpp
bc  - v_cmpx_gt_u16_e32 ti16,T1 dpp
 - bc v_cmpx_gt_u16_e32 hi,h1 x3 dpp
bd  - v_cmpx_ne_u16_e32 ti16,T1 dpp
 - bd v_cmpx_ne_u16_e32 hi,h1 x3 dpp
be  - v_cmpx_ge_u16_e32 ti16,T1 dpp
 - be v_cmpx_ge_u16_e32 hi,h1 x3 dpp
 - c0 v_cmpx_f_i32_e32 b32,v1 dpp
c1 c1 v_cmpx_lt_i32_e32 b32,v1 dpp
c2 c2 v_cmpx_eq_i32_e32 b32,v1 dpp
c3 c3 v_cmpx_le_i32_e32 b32,v1 dpp
c4 c4 v_cmpx_gt_i32_e32 b32,v1 dpp
c5 c5 v_cmpx_ne_i32_e32 b32,v1 dpp
c6 c6 v_cmpx_ge_i32_e32 b32,v1 dpp
 - c7 v_cmpx_t_i32_e32 b32,v1 dpp
 - c8 v_cmpx_f_u32_e32 b32,v1 dpp
c9 c9 v_cmpx_lt_u32_e32 b32,v1 dpp
ca ca v_cmpx_eq_u32_e32 b32,v1 dpp
cb cb v_cmpx_le_u32_e32 b32,v1 dpp
cc cc v_cmpx_gt_u32_e32 b32,v1 dpp
cd cd v_cmpx_ne_u32_e32 b32,v1 dpp
ce ce v_cmpx_ge_u32_e32 b32,v1 dpp
 - cf v_cmpx_t_u32_e32 b32,v1 dpp
 - d0 v_cmpx_f_i64_e32 i64,v2
d1 d1 v_cmpx_lt_i64_e32 i64,v2
d2 d2 v_cmpx_eq_i64_e32 i64,v2
d3 d3 v_cmpx_le_i64_e32 i64,v2
d4 d4 v_cmpx_gt_i64_e32 i64,v2
d5 d5 v_cmpx_ne_i64_e32 i64,v2
d6 d6 v_cmpx_ge_i64_e32 i64,v2
 - d7 v_cmpx_t_i64_e32 i64,v2
 - d8 v_cmpx_f_u64_e32 i64,v2
d9 d9 v_cmpx_lt_u64_e32 i64,v2
da da v_cmpx_eq_u64_e32 i64,v2
db db v_cmpx_le_u64_e32 i64,v2
dc dc v_cmpx_gt_u64_e32 i64,v2
dd dd v_cmpx_ne_u64_e32 i64,v2
de de v_cmpx_ge_u64_e32 i64,v2
 - df v_cmpx_t_u64_e32 i64,v2
fd  - v_cmpx_class_f16_e32 t16,T1 m3 dpp
 - fd v_cmpx_class_f16_e32 hf,h1 m3 dpp
fe fe v_cmpx_class_f32_e32 b32,v1 m1 x2 dpp
ff ff v_cmpx_class_f64_e32 f64,v1
""",
    "VOP3": """
180 180 v_nop - any
19b 19b v_pipeflush - any
  - 000 v_cmp_f_f16_e64 MD,lf,lf m3 c s11fy dpp
001   - v_cmp_lt_f16_e64 MD,f16,f16 m3 c dpp
  - 001 v_cmp_lt_f16_e64 MD,lf,lf m3 c s11fy dpp
002   - v_cmp_eq_f16_e64 MD,f16,f16 m3 c dpp
  - 002 v_cmp_eq_f16_e64 MD,lf,lf m3 c s11fy dpp
003   - v_cmp_le_f16_e64 MD,f16,f16 m3 c dpp
  - 003 v_cmp_le_f16_e64 MD,lf,lf m3 c s11fy dpp
004   - v_cmp_gt_f16_e64 MD,f16,f16 m3 c dpp
  - 004 v_cmp_gt_f16_e64 MD,lf,lf m3 c s11fy dpp
005   - v_cmp_lg_f16_e64 MD,f16,f16 m3 c dpp
  - 005 v_cmp_lg_f16_e64 MD,lf,lf m3 c s11fy dpp
006   - v_cmp_ge_f16_e64 MD,f16,f16 m3 c dpp
  - 006 v_cmp_ge_f16_e64 MD,lf,lf m3 c s11fy dpp
007   - v_cmp_o_f16_e64 MD,f16,f16 m3 c dpp
  - 007 v_cmp_o_f16_e64 MD,lf,lf m3 c s11fy dpp
008   - v_cmp_u_f16_e64 MD,f16,f16 m3 c dpp
  - 008 v_cmp_u_f16_e64 MD,lf,lf m3 c s11fy dpp
009   - v_cmp_nge_f16_e64 MD,f16,f16 m3 c dpp
  - 009 v_cmp_nge_f16_e64 MD,lf,lf m3 c s11fy dpp
00a   - v_cmp_nlg_f16_e64 MD,f16,f16 m3 c dpp
  - 00a v_cmp_nlg_f16_e64 MD,lf,lf m3 c s11fy dpp
00b   - v_cmp_ngt_f16_e64 MD,f16,f16 m3 c dpp
  - 00b v_cmp_ngt_f16_e64 MD,lf,lf m3 c s11fy dpp
00c   - v_cmp_nle_f16_e64 MD,f16,f16 m3 c dpp
  - 00c v_cmp_nle_f16_e64 MD,lf,lf m3 c s11fy dpp
00d   - v_cmp_neq_f16_e64 MD,f16,f16 m3 c dpp
  - 00d v_cmp_neq_f16_e64 MD,lf,lf m3 c s11fy dpp
00e   - v_cmp_nlt_f16_e64 MD,f16,f16 m3 c dpp
  - 00e v_cmp_nlt_f16_e64 MD,lf,lf m3 c s11fy dpp
  - 00f v_cmp_t_f16_e64 MD,lf,lf m3 c s11fy dpp
  - 010 v_cmp_f_f32_e64 MD,b32,b32 m3 c dpp
011 011 v_cmp_lt_f32_e64 MD,b32,b32 m3 c dpp
012 012 v_cmp_eq_f32_e64 MD,b32,b32 m3 c dpp
013 013 v_cmp_le_f32_e64 MD,b32,b32 m3 c dpp
014 014 v_cmp_gt_f32_e64 MD,b32,b32 m3 c dpp
015 015 v_cmp_lg_f32_e64 MD,b32,b32 m3 c dpp
016 016 v_cmp_ge_f32_e64 MD,b32,b32 m3 c dpp
017 017 v_cmp_o_f32_e64 MD,b32,b32 m3 c dpp
018 018 v_cmp_u_f32_e64 MD,b32,b32 m3 c dpp
019 019 v_cmp_nge_f32_e64 MD,b32,b32 m3 c dpp
01a 01a v_cmp_nlg_f32_e64 MD,b32,b32 m3 c dpp
01b 01b v_cmp_ngt_f32_e64 MD,b32,b32 m3 c dpp
01c 01c v_cmp_nle_f32_e64 MD,b32,b32 m3 c dpp
01d 01d v_cmp_neq_f32_e64 MD,b32,b32 m3 c dpp
01e 01e v_cmp_nlt_f32_e64 MD,b32,b32 m3 c dpp
  - 01f v_cmp_t_f32_e64 MD,b32,b32 m3 c dpp
  - 020 v_cmp_f_f64_e64 MD,f64,f64 m3 c
021 021 v_cmp_lt_f64_e64 MD,f64,f64 m3 c
022 022 v_cmp_eq_f64_e64 MD,f64,f64 m3 c
023 023 v_cmp_le_f64_e64 MD,f64,f64 m3 c
024 024 v_cmp_gt_f64_e64 MD,f64,f64 m3 c
025 025 v_cmp_lg_f64_e64 MD,f64,f64 m3 c
026 026 v_cmp_ge_f64_e64 MD,f64,f64 m3 c
027 027 v_cmp_o_f64_e64 MD,f64,f64 m3 c
028 028 v_cmp_u_f64_e64 MD,f64,f64 m3 c
029 029 v_cmp_nge_f64_e64 MD,f64,f64 m3 c
02a 02a v_cmp_nlg_f64_e64 MD,f64,f64 m3 c
02b 02b v_cmp_ngt_f64_e64 MD,f64,f64 m3 c
02c 02c v_cmp_nle_f64_e64 MD,f64,f64 m3 c
02d 02d v_cmp_neq_f64_e64 MD,f64,f64 m3 c
02e 02e v_cmp_nlt_f64_e64 MD,f64,f64 m3 c
  - 02f v_cmp_t_f64_e64 MD,f64,f64 m3 c
031   - v_cmp_lt_i16_e64 MD,i16,i16 dpp
  - 031 v_cmp_lt_i16_e64 MD,li,li x3 s11fy dpp
032   - v_cmp_eq_i16_e64 MD,i16,i16 dpp
  - 032 v_cmp_eq_i16_e64 MD,li,li x3 s11fy dpp
033   - v_cmp_le_i16_e64 MD,i16,i16 dpp
  - 033 v_cmp_le_i16_e64 MD,li,li x3 s11fy dpp
034   - v_cmp_gt_i16_e64 MD,i16,i16 dpp
  - 034 v_cmp_gt_i16_e64 MD,li,li x3 s11fy dpp
035   - v_cmp_ne_i16_e64 MD,i16,i16 dpp
  - 035 v_cmp_ne_i16_e64 MD,li,li x3 s11fy dpp
036   - v_cmp_ge_i16_e64 MD,i16,i16 dpp
  - 036 v_cmp_ge_i16_e64 MD,li,li x3 s11fy dpp
039   - v_cmp_lt_u16_e64 MD,i16,i16 dpp
  - 039 v_cmp_lt_u16_e64 MD,li,li x3 s11fy dpp
03a   - v_cmp_eq_u16_e64 MD,i16,i16 dpp
  - 03a v_cmp_eq_u16_e64 MD,li,li x3 s11fy dpp
03b   - v_cmp_le_u16_e64 MD,i16,i16 dpp
  - 03b v_cmp_le_u16_e64 MD,li,li x3 s11fy dpp
03c   - v_cmp_gt_u16_e64 MD,i16,i16 dpp
  - 03c v_cmp_gt_u16_e64 MD,li,li x3 s11fy dpp
03d   - v_cmp_ne_u16_e64 MD,i16,i16 dpp
  - 03d v_cmp_ne_u16_e64 MD,li,li x3 s11fy dpp
03e   - v_cmp_ge_u16_e64 MD,i16,i16 dpp
  - 03e v_cmp_ge_u16_e64 MD,li,li x3 s11fy dpp
  - 040 v_cmp_f_i32_e64 MD,b32,b32 dpp
041 041 v_cmp_lt_i32_e64 MD,b32,b32 dpp
042 042 v_cmp_eq_i32_e64 MD,b32,b32 dpp
043 043 v_cmp_le_i32_e64 MD,b32,b32 dpp
044 044 v_cmp_gt_i32_e64 MD,b32,b32 dpp
045 045 v_cmp_ne_i32_e64 MD,b32,b32 dpp
046 046 v_cmp_ge_i32_e64 MD,b32,b32 dpp
  - 047 v_cmp_t_i32_e64 MD,b32,b32 dpp
  - 048 v_cmp_f_u32_e64 MD,b32,b32 dpp
049 049 v_cmp_lt_u32_e64 MD,b32,b32 dpp
04a 04a v_cmp_eq_u32_e64 MD,b32,b32 dpp
04b 04b v_cmp_le_u32_e64 MD,b32,b32 dpp
04c 04c v_cmp_gt_u32_e64 MD,b32,b32 dpp
04d 04d v_cmp_ne_u32_e64 MD,b32,b32 dpp
04e 04e v_cmp_ge_u32_e64 MD,b32,b32 dpp
  - 04f v_cmp_t_u32_e64 MD,b32,b32 dpp
  - 050 v_cmp_f_i64_e64 MD,i64,i64
051 051 v_cmp_lt_i64_e64 MD,i64,i64
052 052 v_cmp_eq_i64_e64 MD,i64,i64
053 053 v_cmp_le_i64_e64 MD,i64,i64
054 054 v_cmp_gt_i64_e64 MD,i64,i64
055 055 v_cmp_ne_i64_e64 MD,i64,i64
056 056 v_cmp_ge_i64_e64 MD,i64,i64
  - 057 v_cmp_t_i64_e64 MD,i64,i64
  - 058 v_cmp_f_u64_e64 MD,i64,i64
059 059 v_cmp_lt_u64_e64 MD,i64,i64
05a 05a v_cmp_eq_u64_e64 MD,i64,i64
05b 05b v_cmp_le_u64_e64 MD,i64,i64
05c 05c v_cmp_gt_u64_e64 MD,i64,i64
05d 05d v_cmp_ne_u64_e64 MD,i64,i64
05e 05e v_cmp_ge_u64_e64 MD,i64,i64
  - 05f v_cmp_t_u64_e64 MD,i64,i64
07d   - v_cmp_class_f16_e64 MD,f16,f16 m3 dpp
  - 07d v_cmp_class_f16_e64 MD,lf,lf m3 s11fy dpp
07e 07e v_cmp_class_f32_e64 MD,b32,b32 m1 dpp
07f 07f v_cmp_class_f64_e64 MD,f64,b32 m1
  - 080 v_cmpx_f_f16_e64 no,lf,lf m3 c s11ff dpp
081   - v_cmpx_lt_f16_e64 no,f16,f16 m3 c dpp
  - 081 v_cmpx_lt_f16_e64 no,lf,lf m3 c s11ff dpp
082   - v_cmpx_eq_f16_e64 no,f16,f16 m3 c dpp
  - 082 v_cmpx_eq_f16_e64 no,lf,lf m3 c s11ff dpp
083   - v_cmpx_le_f16_e64 no,f16,f16 m3 c dpp
  - 083 v_cmpx_le_f16_e64 no,lf,lf m3 c s11ff dpp
084   - v_cmpx_gt_f16_e64 no,f16,f16 m3 c dpp
  - 084 v_cmpx_gt_f16_e64 no,lf,lf m3 c s11ff dpp
085   - v_cmpx_lg_f16_e64 no,f16,f16 m3 c dpp
  - 085 v_cmpx_lg_f16_e64 no,lf,lf m3 c s11ff dpp
086   - v_cmpx_ge_f16_e64 no,f16,f16 m3 c dpp
  - 086 v_cmpx_ge_f16_e64 no,lf,lf m3 c s11ff dpp
087   - v_cmpx_o_f16_e64 no,f16,f16 m3 c dpp
  - 087 v_cmpx_o_f16_e64 no,lf,lf m3 c s11ff dpp
088   - v_cmpx_u_f16_e64 no,f16,f16 m3 c dpp
  - 088 v_cmpx_u_f16_e64 no,lf,lf m3 c s11ff dpp
089   - v_cmpx_nge_f16_e64 no,f16,f16 m3 c dpp
  - 089 v_cmpx_nge_f16_e64 no,lf,lf m3 c s11ff dpp
08a   - v_cmpx_nlg_f16_e64 no,f16,f16 m3 c dpp
  - 08a v_cmpx_nlg_f16_e64 no,lf,lf m3 c s11ff dpp
08b   - v_cmpx_ngt_f16_e64 no,f16,f16 m3 c dpp
  - 08b v_cmpx_ngt_f16_e64 no,lf,lf m3 c s11ff dpp
08c   - v_cmpx_nle_f16_e64 no,f16,f16 m3 c dpp
  - 08c v_cmpx_nle_f16_e64 no,lf,lf m3 c s11ff dpp
08d   - v_cmpx_neq_f16_e64 no,f16,f16 m3 c dpp
  - 08d v_cmpx_neq_f16_e64 no,lf,lf m3 c s11ff dpp
08e   - v_cmpx_nlt_f16_e64 no,f16,f16 m3 c dpp
  - 08e v_cmpx_nlt_f16_e64 no,lf,lf m3 c s11ff dpp
  - 08f v_cmpx_t_f16_e64 no,lf,lf m3 c s11ff dpp
  - 090 v_cmpx_f_f32_e64 no,b32,b32 m3 c dpp
091 091 v_cmpx_lt_f32_e64 no,b32,b32 m3 c dpp
092 092 v_cmpx_eq_f32_e64 no,b32,b32 m3 c dpp
093 093 v_cmpx_le_f32_e64 no,b32,b32 m3 c dpp
094 094 v_cmpx_gt_f32_e64 no,b32,b32 m3 c dpp
095 095 v_cmpx_lg_f32_e64 no,b32,b32 m3 c dpp
096 096 v_cmpx_ge_f32_e64 no,b32,b32 m3 c dpp
097 097 v_cmpx_o_f32_e64 no,b32,b32 m3 c dpp
098 098 v_cmpx_u_f32_e64 no,b32,b32 m3 c dpp
099 099 v_cmpx_nge_f32_e64 no,b32,b32 m3 c dpp
09a 09a v_cmpx_nlg_f32_e64 no,b32,b32 m3 c dpp
09b 09b v_cmpx_ngt_f32_e64 no,b32,b32 m3 c dpp
09c 09c v_cmpx_nle_f32_e64 no,b32,b32 m3 c dpp
09d 09d v_cmpx_neq_f32_e64 no,b32,b32 m3 c dpp
09e 09e v_cmpx_nlt_f32_e64 no,b32,b32 m3 c dpp
  - 09f v_cmpx_t_f32_e64 no,b32,b32 m3 c dpp
  - 0a0 v_cmpx_f_f64_e64 no,f64,f64 m3 c
0a1 0a1 v_cmpx_lt_f64_e64 no,f64,f64 m3 c
0a2 0a2 v_cmpx_eq_f64_e64 no,f64,f64 m3 c
0a3 0a3 v_cmpx_le_f64_e64 no,f64,f64 m3 c
0a4 0a4 v_cmpx_gt_f64_e64 no,f64,f64 m3 c
0a5 0a5 v_cmpx_lg_f64_e64 no,f64,f64 m3 c
0a6 0a6 v_cmpx_ge_f64_e64 no,f64,f64 m3 c
0a7 0a7 v_cmpx_o_f64_e64 no,f64,f64 m3 c
0a8 0a8 v_cmpx_u_f64_e64 no,f64,f64 m3 c
0a9 0a9 v_cmpx_nge_f64_e64 no,f64,f64 m3 c
0aa 0aa v_cmpx_nlg_f64_e64 no,f64,f64 m3 c
0ab 0ab v_cmpx_ngt_f64_e64 no,f64,f64 m3 c
0ac 0ac v_cmpx_nle_f64_e64 no,f64,f64 m3 c
0ad 0ad v_cmpx_neq_f64_e64 no,f64,f64 m3 c
0ae 0ae v_cmpx_nlt_f64_e64 no,f64,f64 m3 c
  - 0af v_cmpx_t_f64_e64 no,f64,f64 m3 c
0b1   - v_cmpx_lt_i16_e64 no,i16,i16 dpp
  - 0b1 v_cmpx_lt_i16_e64 no,li,li x3 s11ff dpp
0b2   - v_cmpx_eq_i16_e64 no,i16,i16 dpp
  - 0b2 v_cmpx_eq_i16_e64 no,li,li x3 s11ff dpp
0b3   - v_cmpx_le_i16_e64 no,i16,i16 dpp
  - 0b3 v_cmpx_le_i16_e64 no,li,li x3 s11ff dpp
0b4   - v_cmpx_gt_i16_e64 no,i16,i16 dpp
  - 0b4 v_cmpx_gt_i16_e64 no,li,li x3 s11ff dpp
0b5   - v_cmpx_ne_i16_e64 no,i16,i16 dpp
  - 0b5 v_cmpx_ne_i16_e64 no,li,li x3 s11ff dpp
0b6   - v_cmpx_ge_i16_e64 no,i16,i16 dpp
  - 0b6 v_cmpx_ge_i16_e64 no,li,li x3 s11ff dpp
0b9   - v_cmpx_lt_u16_e64 no,i16,i16 dpp
  - 0b9 v_cmpx_lt_u16_e64 no,li,li x3 s11ff dpp
0ba   - v_cmpx_eq_u16_e64 no,i16,i16 dpp
  - 0ba v_cmpx_eq_u16_e64 no,li,li x3 s11ff dpp
0bb   - v_cmpx_le_u16_e64 no,i16,i16 dpp
  - 0bb v_cmpx_le_u16_e64 no,li,li x3 s11ff dpp
0bc   - v_cmpx_gt_u16_e64 no,i16,i16 dpp
  - 0bc v_cmpx_gt_u16_e64 no,li,li x3 s11ff dpp
0bd   - v_cmpx_ne_u16_e64 no,i16,i16 dpp
  - 0bd v_cmpx_ne_u16_e64 no,li,li x3 s11ff dpp
0be   - v_cmpx_ge_u16_e64 no,i16,i16 dpp
  - 0be v_cmpx_ge_u16_e64 no,li,li x3 s11ff dpp
  - 0c0 v_cmpx_f_i32_e64 no,b32,b32 dpp
0c1 0c1 v_cmpx_lt_i32_e64 no,b32,b32 dpp
0c2 0c2 v_cmpx_eq_i32_e64 no,b32,b32 dpp
0c3 0c3 v_cmpx_le_i32_e64 no,b32,b32 dpp
0c4 0c4 v_cmpx_gt_i32_e64 no,b32,b32 dpp
0c5 0c5 v_cmpx_ne_i32_e64 no,b32,b32 dpp
0c6 0c6 v_cmpx_ge_i32_e64 no,b32,b32 dpp
  - 0c7 v_cmpx_t_i32_e64 no,b32,b32 dpp
  - 0c8 v_cmpx_f_u32_e64 no,b32,b32 dpp
0c9 0c9 v_cmpx_lt_u32_e64 no,b32,b32 dpp
0ca 0ca v_cmpx_eq_u32_e64 no,b32,b32 dpp
0cb 0cb v_cmpx_le_u32_e64 no,b32,b32 dpp
0cc 0cc v_cmpx_gt_u32_e64 no,b32,b32 dpp
0cd 0cd v_cmpx_ne_u32_e64 no,b32,b32 dpp
0ce 0ce v_cmpx_ge_u32_e64 no,b32,b32 dpp
  - 0cf v_cmpx_t_u32_e64 no,b32,b32 dpp
  - 0d0 v_cmpx_f_i64_e64 no,i64,i64
0d1 0d1 v_cmpx_lt_i64_e64 no,i64,i64
0d2 0d2 v_cmpx_eq_i64_e64 no,i64,i64
0d3 0d3 v_cmpx_le_i64_e64 no,i64,i64
0d4 0d4 v_cmpx_gt_i64_e64 no,i64,i64
0d5 0d5 v_cmpx_ne_i64_e64 no,i64,i64
0d6 0d6 v_cmpx_ge_i64_e64 no,i64,i64
  - 0d7 v_cmpx_t_i64_e64 no,i64,i64
  - 0d8 v_cmpx_f_u64_e64 no,i64,i64
0d9 0d9 v_cmpx_lt_u64_e64 no,i64,i64
0da 0da v_cmpx_eq_u64_e64 no,i64,i64
0db 0db v_cmpx_le_u64_e64 no,i64,i64
0dc 0dc v_cmpx_gt_u64_e64 no,i64,i64
0dd 0dd v_cmpx_ne_u64_e64 no,i64,i64
0de 0de v_cmpx_ge_u64_e64 no,i64,i64
  - 0df v_cmpx_t_u64_e64 no,i64,i64
0fd   - v_cmpx_class_f16_e64 no,f16,f16 m3 dpp
  - 0fd v_cmpx_class_f16_e64 no,lf,lf m3 s11ff dpp
0fe 0fe v_cmpx_class_f32_e64 no,b32,b32 m1 x2 dpp
0ff 0ff v_cmpx_class_f64_e64 no,f64,b32 m1 x2
101 101 v_cndmask_b32_e64 v1,b32,b32,M m3 dpp
102   - v_add_f64_e64 v2,f64,f64 m3 c o
103 103 v_add_f32_e64 v1,b32,b32 m3 c o dpp
104 104 v_sub_f32_e64 v1,b32,b32 m3 c o dpp
105 105 v_subrev_f32_e64 v1,b32,b32 m3 c o dpp
106   - v_mul_f64_e64 v2,f64,f64 m3 c o
  - 106 v_fmac_dx9_zero_f32_e64 v1,b32,b32 m3 c o
107 107 v_mul_dx9_zero_f32_e64 v1,b32,b32 m3 c o dpp
108 108 v_mul_f32_e64 v1,b32,b32 m3 c o dpp
109 109 v_mul_i32_i24_e64 v1,b32,b32 c dpp
10a 10a v_mul_hi_i32_i24_e64 v1,b32,b32 dpp
10b 10b v_mul_u32_u24_e64 v1,b32,b32 c dpp
10c 10c v_mul_hi_u32_u24_e64 v1,b32,b32 dpp
10d   - v_min_num_f64_e64 v2,f64,f64 m3 c o
10e   - v_max_num_f64_e64 v2,f64,f64 m3 c o
  - 10f v_min_f32_e64 v1,b32,b32 m3 c o dpp
  - 110 v_max_f32_e64 v1,b32,b32 m3 c o dpp
111 111 v_min_i32_e64 v1,b32,b32 dpp
112 112 v_max_i32_e64 v1,b32,b32 dpp
113 113 v_min_u32_e64 v1,b32,b32 dpp
114 114 v_max_u32_e64 v1,b32,b32 dpp
115   - v_min_num_f32_e64 v1,b32,b32 m3 c o dpp
116   - v_max_num_f32_e64 v1,b32,b32 m3 c o dpp
118 118 v_lshlrev_b32_e64 v1,b32,b32 dpp
119 119 v_lshrrev_b32_e64 v1,b32,b32 dpp
11a 11a v_ashrrev_i32_e64 v1,b32,b32 dpp
11b 11b v_and_b32_e64 v1,b32,b32 dpp
11c 11c v_or_b32_e64 v1,b32,b32 dpp
11d 11d v_xor_b32_e64 v1,b32,b32 dpp
11e 11e v_xnor_b32_e64 v1,b32,b32 dpp
11f   - v_lshlrev_b64_e64 v2,b32,i64
120 120 v_add_co_ci_u32_e64 v1,+MD,b32,b32,M c dpp
121 121 v_sub_co_ci_u32_e64 v1,+MD,b32,b32,M c dpp
122 122 v_subrev_co_ci_u32_e64 v1,+MD,b32,b32,M c dpp
125 125 v_add_nc_u32_e64 v1,b32,b32 c dpp
126 126 v_sub_nc_u32_e64 v1,b32,b32 c dpp
127 127 v_subrev_nc_u32_e64 v1,b32,b32 c dpp
12b 12b v_fmac_f32_e64 v1,b32,b32 m3 c o dpp
12f 12f v_cvt_pk_rtz_f16_f32_e64 v1,b32,b32 m3 c o dpp
130   - v_min_num_f16_e64 v1,f16,f16 m3 c o dpp
131   - v_max_num_f16_e64 v1,f16,f16 m3 c o dpp
132   - v_add_f16_e64 v1,f16,f16 m3 c o dpp
  - 132 v_add_f16_e64 l1,lf,lf m3 c o s11f1 dpp
133   - v_sub_f16_e64 v1,f16,f16 m3 c o dpp
  - 133 v_sub_f16_e64 l1,lf,lf m3 c o s11f1 dpp
134   - v_subrev_f16_e64 v1,f16,f16 m3 c o dpp
  - 134 v_subrev_f16_e64 l1,lf,lf m3 c o s11f1 dpp
135   - v_mul_f16_e64 v1,f16,f16 m3 c o dpp
  - 135 v_mul_f16_e64 l1,lf,lf m3 c o s11f1 dpp
136   - v_fmac_f16_e64 v1,f16,f16 m3 c o dpp
  - 136 v_fmac_f16_e64 l1,lf,lf m3 c o s11f1 dpp
  - 139 v_max_f16_e64 l1,lf,lf m3 c o s11f1 dpp
  - 13a v_min_f16_e64 l1,lf,lf m3 c o s11f1 dpp
13b   - v_ldexp_f16_e64 v1,f16,f16 m1 x2 c o dpp
  - 13b v_ldexp_f16_e64 l1,lf,lf m1 x2 c o s11f1 dpp
181 181 v_mov_b32_e64 v1,b32 dpp
183 183 v_cvt_i32_f64_e64 v1,f64 m1 c o
184 184 v_cvt_f64_i32_e64 v2,b32 c o
185 185 v_cvt_f32_i32_e64 v1,b32 c o dpp
186 186 v_cvt_f32_u32_e64 v1,b32 c o dpp
187 187 v_cvt_u32_f32_e64 v1,b32 m1 c o dpp
188 188 v_cvt_i32_f32_e64 v1,b32 m1 c o dpp
18a   - v_cvt_f16_f32_e64 v1,b32 m1 c o dpp
  - 18a v_cvt_f16_f32_e64 l1,b32 m1 c o s1ff1 dpp
18b   - v_cvt_f32_f16_e64 v1,f16 m1 c o dpp
  - 18b v_cvt_f32_f16_e64 v1,lf m1 c o s1ff1 dpp
18c 18c v_cvt_nearest_i32_f32_e64 v1,b32 m1 c dpp
18d 18d v_cvt_floor_i32_f32_e64 v1,b32 m1 c dpp
18e 18e v_cvt_off_f32_i4_e64 v1,b32 c o dpp
18f 18f v_cvt_f32_f64_e64 v1,f64 m1 c o
190 190 v_cvt_f64_f32_e64 v2,b32 m1 c o
191 191 v_cvt_f32_ubyte0_e64 v1,b32 c o dpp
192 192 v_cvt_f32_ubyte1_e64 v1,b32 c o dpp
193 193 v_cvt_f32_ubyte2_e64 v1,b32 c o dpp
194 194 v_cvt_f32_ubyte3_e64 v1,b32 c o dpp
195 195 v_cvt_u32_f64_e64 v1,f64 m1 c o
196 196 v_cvt_f64_u32_e64 v2,b32 c o
197 197 v_trunc_f64_e64 v2,f64 m1 c o
198 198 v_ceil_f64_e64 v2,f64 m1 c o
199 199 v_rndne_f64_e64 v2,f64 m1 c o
19a 19a v_floor_f64_e64 v2,f64 m1 c o
  - 19c v_mov_b16_e64 l1,li x1 s1001 dpp
1a0 1a0 v_fract_f32_e64 v1,b32 m1 c o dpp
1a1 1a1 v_trunc_f32_e64 v1,b32 m1 c o dpp
1a2 1a2 v_ceil_f32_e64 v1,b32 m1 c o dpp
1a3 1a3 v_rndne_f32_e64 v1,b32 m1 c o dpp
1a4 1a4 v_floor_f32_e64 v1,b32 m1 c o dpp
1a5 1a5 v_exp_f32_e64 v1,b32 m1 c o dpp
1a7 1a7 v_log_f32_e64 v1,b32 m1 c o dpp
1aa 1aa v_rcp_f32_e64 v1,b32 m1 c o dpp
1ab 1ab v_rcp_iflag_f32_e64 v1,b32 m1 c o dpp
1ae 1ae v_rsq_f32_e64 v1,b32 m1 c o dpp
1af 1af v_rcp_f64_e64 v2,f64 m1 c o
1b1 1b1 v_rsq_f64_e64 v2,f64 m1 c o
1b3 1b3 v_sqrt_f32_e64 v1,b32 m1 c o dpp
1b4 1b4 v_sqrt_f64_e64 v2,f64 m1 c o
1b5 1b5 v_sin_f32_e64 v1,b32 m1 c o dpp
1b6 1b6 v_cos_f32_e64 v1,b32 m1 c o dpp
1b7 1b7 v_not_b32_e64 v1,b32 dpp
1b8 1b8 v_bfrev_b32_e64 v1,b32 dpp
1b9 1b9 v_clz_i32_u32_e64 v1,b32 dpp
1ba 1ba v_ctz_i32_b32_e64 v1,b32 dpp
1bb 1bb v_cls_i32_e64 v1,b32 dpp
1bc 1bc v_frexp_exp_i32_f64_e64 v1,f64 m1 c o
1bd 1bd v_frexp_mant_f64_e64 v2,f64 m1 c o
1be 1be v_fract_f64_e64 v2,f64 m1 c o
1bf 1bf v_frexp_exp_i32_f32_e64 v1,b32 m1 c dpp
1c0 1c0 v_frexp_mant_f32_e64 v1,b32 m1 c o dpp
1c2 1c2 v_movreld_b32_e64 v1,b32 dpp
1c3 1c3 v_movrels_b32_e64 v1,V1 dpp
1c4 1c4 v_movrelsd_b32_e64 v1,V1 dpp
1c8 1c8 v_movrelsd_2_b32_e64 v1,V1 dpp
1d0   - v_cvt_f16_u16_e64 v1,i16 c o dpp
  - 1d0 v_cvt_f16_u16_e64 l1,li x1 c o s1ff1 dpp
1d1   - v_cvt_f16_i16_e64 v1,i16 c o dpp
  - 1d1 v_cvt_f16_i16_e64 l1,li x1 c o s1ff1 dpp
1d2   - v_cvt_u16_f16_e64 v1,f16 m1 c o dpp
  - 1d2 v_cvt_u16_f16_e64 l1,lf m1 c o s1ff1 dpp
1d3   - v_cvt_i16_f16_e64 v1,f16 m1 c o dpp
  - 1d3 v_cvt_i16_f16_e64 l1,lf m1 c o s1ff1 dpp
1d4   - v_rcp_f16_e64 v1,f16 m1 c o dpp
  - 1d4 v_rcp_f16_e64 l1,lf m1 c o s1ff1 dpp
1d5   - v_sqrt_f16_e64 v1,f16 m1 c o dpp
  - 1d5 v_sqrt_f16_e64 l1,lf m1 c o s1ff1 dpp
1d6   - v_rsq_f16_e64 v1,f16 m1 c o dpp
  - 1d6 v_rsq_f16_e64 l1,lf m1 c o s1ff1 dpp
1d7   - v_log_f16_e64 v1,f16 m1 c o dpp
  - 1d7 v_log_f16_e64 l1,lf m1 c o s1ff1 dpp
1d8   - v_exp_f16_e64 v1,f16 m1 c o dpp
  - 1d8 v_exp_f16_e64 l1,lf m1 c o s1ff1 dpp
1d9   - v_frexp_mant_f16_e64 v1,f16 m1 c o dpp
  - 1d9 v_frexp_mant_f16_e64 l1,lf m1 c o s1ff1 dpp
1da   - v_frexp_exp_i16_f16_e64 v1,f16 m1 c o dpp
  - 1da v_frexp_exp_i16_f16_e64 l1,lf m1 c o s1ff1 dpp
1db   - v_floor_f16_e64 v1,f16 m1 c o dpp
  - 1db v_floor_f16_e64 l1,lf m1 c o s1ff1 dpp
1dc   - v_ceil_f16_e64 v1,f16 m1 c o dpp
  - 1dc v_ceil_f16_e64 l1,lf m1 c o s1ff1 dpp
1dd   - v_trunc_f16_e64 v1,f16 m1 c o dpp
  - 1dd v_trunc_f16_e64 l1,lf m1 c o s1ff1 dpp
1de   - v_rndne_f16_e64 v1,f16 m1 c o dpp
  - 1de v_rndne_f16_e64 l1,lf m1 c o s1ff1 dpp
1df   - v_fract_f16_e64 v1,f16 m1 c o dpp
  - 1df v_fract_f16_e64 l1,lf m1 c o s1ff1 dpp
1e0   - v_sin_f16_e64 v1,f16 m1 c o dpp
  - 1e0 v_sin_f16_e64 l1,lf m1 c o s1ff1 dpp
1e1   - v_cos_f16_e64 v1,f16 m1 c o dpp
  - 1e1 v_cos_f16_e64 l1,lf m1 c o s1ff1 dpp
1e2   - v_sat_pk_u8_i16_e64 v1,b32 dpp
  - 1e2 v_sat_pk_u8_i16_e64 l1,b32 x1 s1ff1 dpp
1e3   - v_cvt_norm_i16_f16_e64 v1,f16 m1 c o dpp
  - 1e3 v_cvt_norm_i16_f16_e64 l1,lf m1 c o s1ff1 dpp
1e4   - v_cvt_norm_u16_f16_e64 v1,f16 m1 c o dpp
  - 1e4 v_cvt_norm_u16_f16_e64 l1,lf m1 c o s1ff1 dpp
1e9   - v_not_b16_e64 v1,i16 dpp
  - 1e9 v_not_b16_e64 l1,li x1 s1ff1 dpp
1ea   - v_cvt_i32_i16_e64 v1,i16 dpp
  - 1ea v_cvt_i32_i16_e64 v1,li x1 s1ff1 dpp
1eb   - v_cvt_u32_u16_e64 v1,i16 dpp
  - 1eb v_cvt_u32_u16_e64 v1,li x1 s1ff1 dpp
1ec   - v_cvt_f32_fp8_e64 v1,b32 byte0 dpp
1ed   - v_cvt_f32_bf8_e64 v1,b32 byte0 dpp
1ee   - v_cvt_pk_f32_fp8_e64 v2,f16 x1 s1001
1ef   - v_cvt_pk_f32_bf8_e64 v2,f16 x1 s1001
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
216   - v_alignbit_b32 v1,b32,b32,i16 x7 c s1111 dpp
  - 216 v_alignbit_b32 v1,b32,b32,li x7 c s1111 dpp
217   - v_alignbyte_b32 v1,b32,b32,i16 x7 c s1111 dpp
  - 217 v_alignbyte_b32 v1,b32,b32,li x7 c s1111 dpp
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
22b   - v_min3_num_f16 v1,f16,f16,f16 m7 c o s1111 dpp
22c   - v_max3_num_f16 v1,f16,f16,f16 m7 c o s1111 dpp
22d   - v_minimum3_f32 v1,b32,b32,b32 m7 c o dpp
22e   - v_maximum3_f32 v1,b32,b32,b32 m7 c o dpp
22f   - v_minimum3_f16 v1,f16,f16,f16 m7 c o s1111 dpp
230   - v_maximum3_f16 v1,f16,f16,f16 m7 c o s1111 dpp
231   - v_med3_num_f32 v1,b32,b32,b32 m7 c o dpp
232   - v_med3_num_f16 v1,f16,f16,f16 m7 c o s1111 dpp
237 237 v_div_fmas_f32 v1,b32,b32,b32 m7 c o
238 238 v_div_fmas_f64 v2,f64,f64,f64 m7 c o
239 239 v_msad_u8 v1,b32,b32,b32 c dpp
23a 23a v_qsad_pk_u16_u8 v2,i64,b32,i64 c
23b 23b v_mqsad_pk_u16_u8 v2,i64,b32,i64 c
23d 23d v_mqsad_u32_u8 v4,i64,b32,V4 c
240 240 v_xor3_b32 v1,b32,b32,b32 dpp
241   - v_mad_u16 v1,i16,i16,i16 x7 c s1111 dpp
  - 241 v_mad_u16 l1,li,li,li x7 c s1111 dpp
244 244 v_perm_b32 v1,b32,b32,b32 dpp
245 245 v_xad_u32 v1,b32,b32,b32 dpp
246 246 v_lshl_add_u32 v1,b32,b32,b32 dpp
247 247 v_add_lshl_u32 v1,b32,b32,b32 dpp
248   - v_fma_f16 v1,f16,f16,f16 m7 c o s1111 dpp
  - 248 v_fma_f16 l1,lf,lf,lf m7 c o s1111 dpp
  - 249 v_min3_f16 l1,lf,lf,lf m7 c o s1111 dpp
24a   - v_min3_i16 v1,i16,i16,i16 x7 c s1111 dpp
  - 24a v_min3_i16 l1,li,li,li x7 c s1111 dpp
24b   - v_min3_u16 v1,i16,i16,i16 x7 c s1111 dpp
  - 24b v_min3_u16 l1,li,li,li x7 c s1111 dpp
  - 24c v_max3_f16 l1,lf,lf,lf m7 c o s1111 dpp
24d   - v_max3_i16 v1,i16,i16,i16 x7 c s1111 dpp
  - 24d v_max3_i16 l1,li,li,li x7 c s1111 dpp
24e   - v_max3_u16 v1,i16,i16,i16 x7 c s1111 dpp
  - 24e v_max3_u16 l1,li,li,li x7 c s1111 dpp
  - 24f v_med3_f16 l1,lf,lf,lf m7 c o s1111 dpp
250   - v_med3_i16 v1,i16,i16,i16 x7 c s1111 dpp
  - 250 v_med3_i16 l1,li,li,li x7 c s1111 dpp
251   - v_med3_u16 v1,i16,i16,i16 x7 c s1111 dpp
  - 251 v_med3_u16 l1,li,li,li x7 c s1111 dpp
253   - v_mad_i16 v1,i16,i16,i16 x7 c s1111 dpp
  - 253 v_mad_i16 l1,li,li,li x7 c s1111 dpp
254   - v_div_fixup_f16 v1,f16,f16,f16 m7 c o s1111 dpp
  - 254 v_div_fixup_f16 l1,lf,lf,lf m7 c o s1111 dpp
255 255 v_add3_u32 v1,b32,b32,b32 dpp
256 256 v_lshl_or_b32 v1,b32,b32,b32 dpp
257 257 v_and_or_b32 v1,b32,b32,b32 dpp
258 258 v_or3_b32 v1,b32,b32,b32 dpp
259   - v_mad_u32_u16 v1,i16,i16,b32 x7 c s1111 dpp
  - 259 v_mad_u32_u16 v1,li,li,b32 x7 c s1111 dpp
25a   - v_mad_i32_i16 v1,i16,i16,b32 x7 c s1111 dpp
  - 25a v_mad_i32_i16 v1,li,li,b32 x7 c s1111 dpp
25b 25b v_permlane16_b32 v1,V1,s32,s32 s11ii
25c 25c v_permlanex16_b32 v1,V1,s32,s32 s11ii
25d   - v_cndmask_b16 v1,i16,i16,M m3 dpp
  - 25d v_cndmask_b16 l1,li,li,M m3 shh0h dpp
  - 25e v_maxmin_f32 v1,b32,b32,b32 m7 c o dpp
  - 25f v_minmax_f32 v1,b32,b32,b32 m7 c o dpp
  - 260 v_maxmin_f16 l1,lf,lf,lf m7 c o s1111 dpp
  - 261 v_minmax_f16 l1,lf,lf,lf m7 c o s1111 dpp
262 262 v_maxmin_u32 v1,b32,b32,b32 dpp
263 263 v_minmax_u32 v1,b32,b32,b32 dpp
264 264 v_maxmin_i32 v1,b32,b32,b32 dpp
265 265 v_minmax_i32 v1,b32,b32,b32 dpp
266   - v_dot2_f16_f16 v1,b32,b32,f16 m7 szz11 dpp
  - 266 v_dot2_f16_f16 l1,b32,b32,lf m7 s1111 dpp
267   - v_dot2_bf16_bf16 v1,b32,b32,b32 m7 szz11 dpp
  - 267 v_dot2_bf16_bf16 l1,b32,b32,lf m7 s1111 dpp
268   - v_minmax_num_f32 v1,b32,b32,b32 m7 c o dpp
269   - v_maxmin_num_f32 v1,b32,b32,b32 m7 c o dpp
26a   - v_minmax_num_f16 v1,f16,f16,f16 m7 c o s1111 dpp
26b   - v_maxmin_num_f16 v1,f16,f16,f16 m7 c o s1111 dpp
26c   - v_minimummaximum_f32 v1,b32,b32,b32 m7 c o dpp
26d   - v_maximumminimum_f32 v1,b32,b32,b32 m7 c o dpp
26e   - v_minimummaximum_f16 v1,f16,f16,f16 m7 c o s1111 dpp
26f   - v_maximumminimum_f16 v1,f16,f16,f16 m7 c o s1111 dpp
280   - v_s_exp_f32 DX,s32 m1 c o
281   - v_s_exp_f16 DX,sf16 m1 c o
282   - v_s_log_f32 DX,s32 m1 c o
283   - v_s_log_f16 DX,sf16 m1 c o
284   - v_s_rcp_f32 DX,s32 m1 c o
285   - v_s_rcp_f16 DX,sf16 m1 c o
286   - v_s_rsq_f32 DX,s32 m1 c o
287   - v_s_rsq_f16 DX,sf16 m1 c o
288   - v_s_sqrt_f32 DX,s32 m1 c o
289   - v_s_sqrt_f16 DX,sf16 m1 c o
2fc 2fc v_div_scale_f32 v1,+MD,b32,b32,b32 n7 c o
2fd 2fd v_div_scale_f64 v2,+MD,f64,f64,f64 n7 c o
2fe   - v_mad_co_u64_u32 v2,+MD,b32,b32,i64 c
  - 2fe v_mad_u64_u32 v2,+MD,b32,b32,i64 c
2ff   - v_mad_co_i64_i32 v2,+MD,b32,b32,i64 c
  - 2ff v_mad_i64_i32 v2,+MD,b32,b32,i64 c
300 300 v_add_co_u32 v1,+MD,b32,b32 c dpp
301 301 v_sub_co_u32 v1,+MD,b32,b32 c dpp
302 302 v_subrev_co_u32 v1,+MD,b32,b32 c dpp
303   - v_add_nc_u16 v1,i16,i16 x3 c s1101 dpp
  - 303 v_add_nc_u16 l1,li,li x3 c s1101 dpp
304   - v_sub_nc_u16 v1,i16,i16 x3 c s1101 dpp
  - 304 v_sub_nc_u16 l1,li,li x3 c s1101 dpp
305   - v_mul_lo_u16 v1,i16,i16 dpp
  - 305 v_mul_lo_u16 l1,li,li x3 s11f1 dpp
306 306 v_cvt_pk_i16_f32 v1,b32,b32 m3 c dpp
307 307 v_cvt_pk_u16_f32 v1,b32,b32 m3 c dpp
309   - v_max_u16 v1,i16,i16 dpp
  - 309 v_max_u16 l1,li,li x3 s11f1 dpp
30a   - v_max_i16 v1,i16,i16 dpp
  - 30a v_max_i16 l1,li,li x3 s11f1 dpp
30b   - v_min_u16 v1,i16,i16 dpp
  - 30b v_min_u16 l1,li,li x3 s11f1 dpp
30c   - v_min_i16 v1,i16,i16 dpp
  - 30c v_min_i16 l1,li,li x3 s11f1 dpp
30d   - v_add_nc_i16 v1,i16,i16 x3 c s1101 dpp
  - 30d v_add_nc_i16 l1,li,li x3 c s1101 dpp
30e   - v_sub_nc_i16 v1,i16,i16 x3 c s1101 dpp
  - 30e v_sub_nc_i16 l1,li,li x3 c s1101 dpp
30f   - v_permlane16_var_b32 v1,V1,V1 s110i
310   - v_permlanex16_var_b32 v1,V1,V1 s110i
311   - v_pack_b32_f16 v1,f16,f16 m3 c s1101 dpp
  - 311 v_pack_b32_f16 v1,lf,lf m3 c s1101 dpp
312   - v_cvt_pk_norm_i16_f16 v1,f16,f16 m3 c s1101 dpp
  - 312 v_cvt_pk_norm_i16_f16 v1,lf,lf m3 c s1101 dpp
313   - v_cvt_pk_norm_u16_f16 v1,f16,f16 m3 c s1101 dpp
  - 313 v_cvt_pk_norm_u16_f16 v1,lf,lf m3 c s1101 dpp
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
338   - v_lshlrev_b16 v1,i16,i16 dpp
  - 338 v_lshlrev_b16 l1,li,li x3 s11f1 dpp
339   - v_lshrrev_b16 v1,i16,i16 dpp
  - 339 v_lshrrev_b16 l1,li,li x3 s11f1 dpp
33a   - v_ashrrev_i16 v1,i16,i16 dpp
  - 33a v_ashrrev_i16 l1,li,li x3 s11f1 dpp
  - 33c v_lshlrev_b64 v2,b32,i64
33d 33d v_lshrrev_b64 v2,b32,i64
33e 33e v_ashrrev_i64 v2,b32,i64
341   - v_minimum_f64 v2,f64,f64 m3 c o
342   - v_maximum_f64 v2,f64,f64 m3 c o
360 360 v_readlane_b32 D0,VL,s32
361 361 v_writelane_b32 v1,SL,s32
362   - v_and_b16 v1,i16,i16 dpp
  - 362 v_and_b16 l1,li,li x3 s11f1 dpp
363   - v_or_b16 v1,i16,i16 dpp
  - 363 v_or_b16 l1,li,li x3 s11f1 dpp
364   - v_xor_b16 v1,i16,i16 dpp
  - 364 v_xor_b16 l1,li,li x3 s11f1 dpp
365   - v_minimum_f32 v1,b32,b32 m3 c o dpp
366   - v_maximum_f32 v1,b32,b32 m3 c o dpp
367   - v_minimum_f16 v1,f16,f16 m3 c o s1101 dpp
368   - v_maximum_f16 v1,f16,f16 m3 c o s1101 dpp
369   - v_cvt_pk_fp8_f32 v1,b32,b32 m3 s1101 dpp
36a   - v_cvt_pk_bf8_f32 v1,b32,b32 m3 s1101 dpp
36b   - v_cvt_sr_fp8_f32 v1,b32,b32 m1 x2 byte2 dpp
36c   - v_cvt_sr_bf8_f32 v1,b32,b32 m1 x2 byte2 dpp
""",
}
