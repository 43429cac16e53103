"""Vector opcodes: gfx12, gfx11, mnemonic, operands, flags. See rows.py and vector.py."""

ROWS = {
    "VOP1": """
00 00 v_nop - any
1b 1b v_pipeflush - any
01  - v_mov_b32_e32 v1,b32 dpp
02  - v_readfirstlane_b32 D0,VL
03  - v_cvt_i32_f64_e32 v1,f64
04  - v_cvt_f64_i32_e32 v2,b32
05  - v_cvt_f32_i32_e32 v1,b32 dpp
06  - v_cvt_f32_u32_e32 v1,b32 dpp
07  - v_cvt_u32_f32_e32 v1,b32 m1 dpp
08  - v_cvt_i32_f32_e32 v1,b32 m1 dpp
0a  - v_cvt_f16_f32_e32 t1,b32 m1 dpp
0b  - v_cvt_f32_f16_e32 v1,t16 m1 dpp
0c  - v_cvt_nearest_i32_f32_e32 v1,b32 m1 dpp
0d  - v_cvt_floor_i32_f32_e32 v1,b32 m1 dpp
0e  - v_cvt_off_f32_i4_e32 v1,b32 dpp
0f  - v_cvt_f32_f64_e32 v1,f64
10  - v_cvt_f64_f32_e32 v2,b32
11  - v_cvt_f32_ubyte0_e32 v1,b32 dpp
12  - v_cvt_f32_ubyte1_e32 v1,b32 dpp
13  - v_cvt_f32_ubyte2_e32 v1,b32 dpp
14  - v_cvt_f32_ubyte3_e32 v1,b32 dpp
15  - v_cvt_u32_f64_e32 v1,f64
16  - v_cvt_f64_u32_e32 v2,b32
17  - v_trunc_f64_e32 v2,f64
18  - v_ceil_f64_e32 v2,f64
19  - v_rndne_f64_e32 v2,f64
1a  - v_floor_f64_e32 v2,f64
20  - v_fract_f32_e32 v1,b32 m1 dpp
21  - v_trunc_f32_e32 v1,b32 m1 dpp
22  - v_ceil_f32_e32 v1,b32 m1 dpp
23  - v_rndne_f32_e32 v1,b32 m1 dpp
24  - v_floor_f32_e32 v1,b32 m1 dpp
25  - v_exp_f32_e32 v1,b32 m1 dpp
27  - v_log_f32_e32 v1,b32 m1 dpp
2a  - v_rcp_f32_e32 v1,b32 m1 dpp
2b  - v_rcp_iflag_f32_e32 v1,b32 m1 dpp
2e  - v_rsq_f32_e32 v1,b32 m1 dpp
2f  - v_rcp_f64_e32 v2,f64
31  - v_rsq_f64_e32 v2,f64
33  - v_sqrt_f32_e32 v1,b32 m1 dpp
34  - v_sqrt_f64_e32 v2,f64
35  - v_sin_f32_e32 v1,b32 m1 dpp
36  - v_cos_f32_e32 v1,b32 m1 dpp
37  - v_not_b32_e32 v1,b32 dpp
38  - v_bfrev_b32_e32 v1,b32 dpp
39  - v_clz_i32_u32_e32 v1,b32 dpp
3a  - v_ctz_i32_b32_e32 v1,b32 dpp
3b  - v_cls_i32_e32 v1,b32 dpp
3c  - v_frexp_exp_i32_f64_e32 v1,f64
3d  - v_frexp_mant_f64_e32 v2,f64
3e  - v_fract_f64_e32 v2,f64
3f  - v_frexp_exp_i32_f32_e32 v1,b32 m1 dpp
40  - v_frexp_mant_f32_e32 v1,b32 m1 dpp
42  - v_movreld_b32_e32 v1,b32 dpp
43  - v_movrels_b32_e32 v1,V1 dpp
44  - v_movrelsd_b32_e32 v1,V1 dpp
48  - v_movrelsd_2_b32_e32 v1,V1 dpp
50  - v_cvt_f16_u16_e32 t1,ti16 dpp
51  - v_cvt_f16_i16_e32 t1,ti16 dpp
52  - v_cvt_u16_f16_e32 t1,t16 m1 dpp
53  - v_cvt_i16_f16_e32 t1,t16 m1 dpp
54  - v_rcp_f16_e32 t1,t16 m1 dpp
55  - v_sqrt_f16_e32 t1,t16 m1 dpp
56  - v_rsq_f16_e32 t1,t16 m1 dpp
57  - v_log_f16_e32 t1,t16 m1 dpp
58  - v_exp_f16_e32 t1,t16 m1 dpp
59  - v_frexp_mant_f16_e32 t1,t16 m1 dpp
5a  - v_frexp_exp_i16_f16_e32 t1,t16 m1 dpp
5b  - v_floor_f16_e32 t1,t16 m1 dpp
5c  - v_ceil_f16_e32 t1,t16 m1 dpp
5d  - v_trunc_f16_e32 t1,t16 m1 dpp
5e  - v_rndne_f16_e32 t1,t16 m1 dpp
5f  - v_fract_f16_e32 t1,t16 m1 dpp
60  - v_sin_f16_e32 t1,t16 m1 dpp
61  - v_cos_f16_e32 t1,t16 m1 dpp
62  - v_sat_pk_u8_i16_e32 t1,b32 dpp
63  - v_cvt_norm_i16_f16_e32 t1,t16 m1 dpp
64  - v_cvt_norm_u16_f16_e32 t1,t16 m1 dpp
65  - v_swap_b32 v1,V1
67  - v_permlane64_b32 v1,V1
68  - v_swaprel_b32 v1,V1
69  - v_not_b16_e32 t1,ti16 dpp
6a  - v_cvt_i32_i16_e32 v1,ti16 dpp
6b  - v_cvt_u32_u16_e32 v1,ti16 dpp
6c  - v_cvt_f32_fp8_e32 v1,b32 dpp
6d  - v_cvt_f32_bf8_e32 v1,b32 dpp
6e  - v_cvt_pk_f32_fp8_e32 v2,t16
6f  - v_cvt_pk_f32_bf8_e32 v2,t16
""",
    "VOP2": """
01  - v_cndmask_b32_e32 v1,b32,v1,vcc m3 dpp
02  - v_add_f64_e32 v2,f64,v2
03  - v_add_f32_e32 v1,b32,v1 m3 dpp
04  - v_sub_f32_e32 v1,b32,v1 m3 dpp
05  - v_subrev_f32_e32 v1,b32,v1 m3 dpp
06  - v_mul_f64_e32 v2,f64,v2
07  - v_mul_dx9_zero_f32_e32 v1,b32,v1 m3 dpp
08  - v_mul_f32_e32 v1,b32,v1 m3 dpp
09  - v_mul_i32_i24_e32 v1,b32,v1 dpp
0a  - v_mul_hi_i32_i24_e32 v1,b32,v1 dpp
0b  - v_mul_u32_u24_e32 v1,b32,v1 dpp
0c  - v_mul_hi_u32_u24_e32 v1,b32,v1 dpp
0d  - v_min_num_f64_e32 v2,f64,v2
0e  - v_max_num_f64_e32 v2,f64,v2
11  - v_min_i32_e32 v1,b32,v1 dpp
12  - v_max_i32_e32 v1,b32,v1 dpp
13  - v_min_u32_e32 v1,b32,v1 dpp
14  - v_max_u32_e32 v1,b32,v1 dpp
15  - v_min_num_f32_e32 v1,b32,v1 m3 dpp
16  - v_max_num_f32_e32 v1,b32,v1 m3 dpp
18  - v_lshlrev_b32_e32 v1,b32,v1 dpp
19  - v_lshrrev_b32_e32 v1,b32,v1 dpp
1a  - v_ashrrev_i32_e32 v1,b32,v1 dpp
1b  - v_and_b32_e32 v1,b32,v1 dpp
1c  - v_or_b32_e32 v1,b32,v1 dpp
1d  - v_xor_b32_e32 v1,b32,v1 dpp
1e  - v_xnor_b32_e32 v1,b32,v1 dpp
1f  - v_lshlrev_b64_e32 v2,b32,v2
20  - v_add_co_ci_u32_e32 v1,vcc,b32,v1,vcc dpp
21  - v_sub_co_ci_u32_e32 v1,vcc,b32,v1,vcc dpp
22  - v_subrev_co_ci_u32_e32 v1,vcc,b32,v1,vcc dpp
25  - v_add_nc_u32_e32 v1,b32,v1 dpp
26  - v_sub_nc_u32_e32 v1,b32,v1 dpp
27  - v_subrev_nc_u32_e32 v1,b32,v1 dpp
2b  - v_fmac_f32_e32 v1,b32,v1 m3 dpp
2c  - v_fmamk_f32 v1,b32,K,v1
2d  - v_fmaak_f32 v1,b32,v1,K
2f  - v_cvt_pk_rtz_f16_f32_e32 v1,b32,v1 m3 dpp
30  - v_min_num_f16_e32 t1,t16,T1 m3 dpp
31  - v_max_num_f16_e32 t1,t16,T1 m3 dpp
32  - v_add_f16_e32 t1,t16,T1 m3 dpp
33  - v_sub_f16_e32 t1,t16,T1 m3 dpp
34  - v_subrev_f16_e32 t1,t16,T1 m3 dpp
35  - v_mul_f16_e32 t1,t16,T1 m3 dpp
36  - v_fmac_f16_e32 t1,t16,T1 m3 dpp
37  - v_fmamk_f16 t1,t16,K,T1
38  - v_fmaak_f16 t1,t16,T1,K
3b  - v_ldexp_f16_e32 t1,t16,T1 m1 x2 dpp
3c  - v_pk_fmac_f16 v1,b32,v1
""",
    "VOPC": """
01  - v_cmp_lt_f16_e32 vcc,t16,T1 m3 dpp
02  - v_cmp_eq_f16_e32 vcc,t16,T1 m3 dpp
03  - v_cmp_le_f16_e32 vcc,t16,T1 m3 dpp
04  - v_cmp_gt_f16_e32 vcc,t16,T1 m3 dpp
05  - v_cmp_lg_f16_e32 vcc,t16,T1 m3 dpp
06  - v_cmp_ge_f16_e32 vcc,t16,T1 m3 dpp
07  - v_cmp_o_f16_e32 vcc,t16,T1 m3 dpp
08  - v_cmp_u_f16_e32 vcc,t16,T1 m3 dpp
09  - v_cmp_nge_f16_e32 vcc,t16,T1 m3 dpp
0a  - v_cmp_nlg_f16_e32 vcc,t16,T1 m3 dpp
0b  - v_cmp_ngt_f16_e32 vcc,t16,T1 m3 dpp
0c  - v_cmp_nle_f16_e32 vcc,t16,T1 m3 dpp
0d  - v_cmp_neq_f16_e32 vcc,t16,T1 m3 dpp
0e  - v_cmp_nlt_f16_e32 vcc,t16,T1 m3 dpp
11  - v_cmp_lt_f32_e32 vcc,b32,v1 m3 dpp
12  - v_cmp_eq_f32_e32 vcc,b32,v1 m3 dpp
13  - v_cmp_le_f32_e32 vcc,b32,v1 m3 dpp
14  - v_cmp_gt_f32_e32 vcc,b32,v1 m3 dpp
15  - v_cmp_lg_f32_e32 vcc,b32,v1 m3 dpp
16  - v_cmp_ge_f32_e32 vcc,b32,v1 m3 dpp
17  - v_cmp_o_f32_e32 vcc,b32,v1 m3 dpp
18  - v_cmp_u_f32_e32 vcc,b32,v1 m3 dpp
19  - v_cmp_nge_f32_e32 vcc,b32,v1 m3 dpp
1a  - v_cmp_nlg_f32_e32 vcc,b32,v1 m3 dpp
1b  - v_cmp_ngt_f32_e32 vcc,b32,v1 m3 dpp
1c  - v_cmp_nle_f32_e32 vcc,b32,v1 m3 dpp
1d  - v_cmp_neq_f32_e32 vcc,b32,v1 m3 dpp
1e  - v_cmp_nlt_f32_e32 vcc,b32,v1 m3 dpp
21  - v_cmp_lt_f64_e32 vcc,f64,v2
22  - v_cmp_eq_f64_e32 vcc,f64,v2
23  - v_cmp_le_f64_e32 vcc,f64,v2
24  - v_cmp_gt_f64_e32 vcc,f64,v2
25  - v_cmp_lg_f64_e32 vcc,f64,v2
26  - v_cmp_ge_f64_e32 vcc,f64,v2
27  - v_cmp_o_f64_e32 vcc,f64,v2
28  - v_cmp_u_f64_e32 vcc,f64,v2
29  - v_cmp_nge_f64_e32 vcc,f64,v2
2a  - v_cmp_nlg_f64_e32 vcc,f64,v2
2b  - v_cmp_ngt_f64_e32 vcc,f64,v2
2c  - v_cmp_nle_f64_e32 vcc,f64,v2
2d  - v_cmp_neq_f64_e32 vcc,f64,v2
2e  - v_cmp_nlt_f64_e32 vcc,f64,v2
31  - v_cmp_lt_i16_e32 vcc,ti16,T1 dpp
32  - v_cmp_eq_i16_e32 vcc,ti16,T1 dpp
33  - v_cmp_le_i16_e32 vcc,ti16,T1 dpp
34  - v_cmp_gt_i16_e32 vcc,ti16,T1 dpp
35  - v_cmp_ne_i16_e32 vcc,ti16,T1 dpp
36  - v_cmp_ge_i16_e32 vcc,ti16,T1 dpp
39  - v_cmp_lt_u16_e32 vcc,ti16,T1 dpp
3a  - v_cmp_eq_u16_e32 vcc,ti16,T1 dpp
3b  - v_cmp_le_u16_e32 vcc,ti16,T1 dpp
3c  - v_cmp_gt_u16_e32 vcc,ti16,T1 dpp
3d  - v_cmp_ne_u16_e32 vcc,ti16,T1 dpp
3e  - v_cmp_ge_u16_e32 vcc,ti16,T1 dpp
41  - v_cmp_lt_i32_e32 vcc,b32,v1 dpp
42  - v_cmp_eq_i32_e32 vcc,b32,v1 dpp
43  - v_cmp_le_i32_e32 vcc,b32,v1 dpp
44  - v_cmp_gt_i32_e32 vcc,b32,v1 dpp
45  - v_cmp_ne_i32_e32 vcc,b32,v1 dpp
46  - v_cmp_ge_i32_e32 vcc,b32,v1 dpp
49  - v_cmp_lt_u32_e32 vcc,b32,v1 dpp
4a  - v_cmp_eq_u32_e32 vcc,b32,v1 dpp
4b  - v_cmp_le_u32_e32 vcc,b32,v1 dpp
4c  - v_cmp_gt_u32_e32 vcc,b32,v1 dpp
4d  - v_cmp_ne_u32_e32 vcc,b32,v1 dpp
4e  - v_cmp_ge_u32_e32 vcc,b32,v1 dpp
51  - v_cmp_lt_i64_e32 vcc,i64,v2
52  - v_cmp_eq_i64_e32 vcc,i64,v2
53  - v_cmp_le_i64_e32 vcc,i64,v2
54  - v_cmp_gt_i64_e32 vcc,i64,v2
55  - v_cmp_ne_i64_e32 vcc,i64,v2
56  - v_cmp_ge_i64_e32 vcc,i64,v2
59  - v_cmp_lt_u64_e32 vcc,i64,v2
5a  - v_cmp_eq_u64_e32 vcc,i64,v2
5b  - v_cmp_le_u64_e32 vcc,i64,v2
5c  - v_cmp_gt_u64_e32 vcc,i64,v2
5d  - v_cmp_ne_u64_e32 vcc,i64,v2
5e  - v_cmp_ge_u64_e32 vcc,i64,v2
7d  - v_cmp_class_f16_e32 vcc,t16,T1 m3 dpp
7e  - v_cmp_class_f32_e32 vcc,b32,v1 m1 dpp
7f  - v_cmp_class_f64_e32 vcc,f64,v1
81  - v_cmpx_lt_f16_e32 t16,T1 m3 dpp
82  - v_cmpx_eq_f16_e32 t16,T1 m3 dpp
83  - v_cmpx_le_f16_e32 t16,T1 m3 dpp
84  - v_cmpx_gt_f16_e32 t16,T1 m3 dpp
85  - v_cmpx_lg_f16_e32 t16,T1 m3 dpp
86  - v_cmpx_ge_f16_e32 t16,T1 m3 dpp
87  - v_cmpx_o_f16_e32 t16,T1 m3 dpp
88  - v_cmpx_u_f16_e32 t16,T1 m3 dpp
89  - v_cmpx_nge_f16_e32 t16,T1 m3 dpp
8a  - v_cmpx_nlg_f16_e32 t16,T1 m3 dpp
8b  - v_cmpx_ngt_f16_e32 t16,T1 m3 dpp
8c  - v_cmpx_nle_f16_e32 t16,T1 m3 dpp
8d  - v_cmpx_neq_f16_e32 t16,T1 m3 dpp
8e  - v_cmpx_nlt_f16_e32 t16,T1 m3 dpp
91  - v_cmpx_lt_f32_e32 b32,v1 m3 dpp
92  - v_cmpx_eq_f32_e32 b32,v1 m3 dpp
93  - v_cmpx_le_f32_e32 b32,v1 m3 dpp
94  - v_cmpx_gt_f32_e32 b32,v1 m3 dpp
95  - v_cmpx_lg_f32_e32 b32,v1 m3 dpp
96  - v_cmpx_ge_f32_e32 b32,v1 m3 dpp
97  - v_cmpx_o_f32_e32 b32,v1 m3 dpp
98  - v_cmpx_u_f32_e32 b32,v1 m3 dpp
99  - v_cmpx_nge_f32_e32 b32,v1 m3 dpp
9a  - v_cmpx_nlg_f32_e32 b32,v1 m3 dpp
9b  - v_cmpx_ngt_f32_e32 b32,v1 m3 dpp
9c  - v_cmpx_nle_f32_e32 b32,v1 m3 dpp
9d  - v_cmpx_neq_f32_e32 b32,v1 m3 dpp
9e  - v_cmpx_nlt_f32_e32 b32,v1 m3 dpp
a1  - v_cmpx_lt_f64_e32 f64,v2
a2  - v_cmpx_eq_f64_e32 f64,v2
a3  - v_cmpx_le_f64_e32 f64,v2
a4  - v_cmpx_gt_f64_e32 f64,v2
a5  - v_cmpx_lg_f64_e32 f64,v2
a6  - v_cmpx_ge_f64_e32 f64,v2
a7  - v_cmpx_o_f64_e32 f64,v2
a8  - v_cmpx_u_f64_e32 f64,v2
a9  - v_cmpx_nge_f64_e32 f64,v2
aa  - v_cmpx_nlg_f64_e32 f64,v2
ab  - v_cmpx_ngt_f64_e32 f64,v2
ac  - v_cmpx_nle_f64_e32 f64,v2
ad  - v_cmpx_neq_f64_e32 f64,v2
ae  - v_cmpx_nlt_f64_e32 f64,v2
b1  - v_cmpx_lt_i16_e32 ti16,T1 dpp
b2  - v_cmpx_eq_i16_e32 ti16,T1 dpp
b3  - v_cmpx_le_i16_e32 ti16,T1 dpp
b4  - v_cmpx_gt_i16_e32 ti16,T1 dpp
b5  - v_cmpx_ne_i16_e32 ti16,T1 dpp
b6  - v_cmpx_ge_i16_e32 ti16,T1 dpp
b9  - v_cmpx_lt_u16_e32 ti16,T1 dpp
ba  - v_cmpx_eq_u16_e32 ti16,T1 dpp
bb  - v_cmpx_le_u16_e32 ti16,T1 dpp
bc  - v_cmpx_gt_u16_e32 ti16,T1 dpp
bd  - v_cmpx_ne_u16_e32 ti16,T1 dpp
be  - v_cmpx_ge_u16_e32 ti16,T1 dpp
c1  - v_cmpx_lt_i32_e32 b32,v1 dpp
c2  - v_cmpx_eq_i32_e32 b32,v1 dpp
c3  - v_cmpx_le_i32_e32 b32,v1 dpp
c4  - v_cmpx_gt_i32_e32 b32,v1 dpp
c5  - v_cmpx_ne_i32_e32 b32,v1 dpp
c6  - v_cmpx_ge_i32_e32 b32,v1 dpp
c9  - v_cmpx_lt_u32_e32 b32,v1 dpp
ca  - v_cmpx_eq_u32_e32 b32,v1 dpp
cb  - v_cmpx_le_u32_e32 b32,v1 dpp
cc  - v_cmpx_gt_u32_e32 b32,v1 dpp
cd  - v_cmpx_ne_u32_e32 b32,v1 dpp
ce  - v_cmpx_ge_u32_e32 b32,v1 dpp
d1  - v_cmpx_lt_i64_e32 i64,v2
d2  - v_cmpx_eq_i64_e32 i64,v2
d3  - v_cmpx_le_i64_e32 i64,v2
d4  - v_cmpx_gt_i64_e32 i64,v2
d5  - v_cmpx_ne_i64_e32 i64,v2
d6  - v_cmpx_ge_i64_e32 i64,v2
d9  - v_cmpx_lt_u64_e32 i64,v2
da  - v_cmpx_eq_u64_e32 i64,v2
db  - v_cmpx_le_u64_e32 i64,v2
dc  - v_cmpx_gt_u64_e32 i64,v2
dd  - v_cmpx_ne_u64_e32 i64,v2
de  - v_cmpx_ge_u64_e32 i64,v2
fd  - v_cmpx_class_f16_e32 t16,T1 m3 dpp
fe  - v_cmpx_class_f32_e32 b32,v1 m1 x2 dpp
ff  - v_cmpx_class_f64_e32 f64,v1
""",
    "VOP3": """
180 180 v_nop - any
19b 19b v_pipeflush - any
001   - v_cmp_lt_f16_e64 MD,f16,f16 m3 c dpp
002   - v_cmp_eq_f16_e64 MD,f16,f16 m3 c dpp
003   - v_cmp_le_f16_e64 MD,f16,f16 m3 c dpp
004   - v_cmp_gt_f16_e64 MD,f16,f16 m3 c dpp
005   - v_cmp_lg_f16_e64 MD,f16,f16 m3 c dpp
006   - v_cmp_ge_f16_e64 MD,f16,f16 m3 c dpp
007   - v_cmp_o_f16_e64 MD,f16,f16 m3 c dpp
008   - v_cmp_u_f16_e64 MD,f16,f16 m3 c dpp
009   - v_cmp_nge_f16_e64 MD,f16,f16 m3 c dpp
00a   - v_cmp_nlg_f16_e64 MD,f16,f16 m3 c dpp
00b   - v_cmp_ngt_f16_e64 MD,f16,f16 m3 c dpp
00c   - v_cmp_nle_f16_e64 MD,f16,f16 m3 c dpp
00d   - v_cmp_neq_f16_e64 MD,f16,f16 m3 c dpp
00e   - v_cmp_nlt_f16_e64 MD,f16,f16 m3 c dpp
011   - v_cmp_lt_f32_e64 MD,b32,b32 m3 c dpp
012   - v_cmp_eq_f32_e64 MD,b32,b32 m3 c dpp
013   - v_cmp_le_f32_e64 MD,b32,b32 m3 c dpp
014   - v_cmp_gt_f32_e64 MD,b32,b32 m3 c dpp
015   - v_cmp_lg_f32_e64 MD,b32,b32 m3 c dpp
016   - v_cmp_ge_f32_e64 MD,b32,b32 m3 c dpp
017   - v_cmp_o_f32_e64 MD,b32,b32 m3 c dpp
018   - v_cmp_u_f32_e64 MD,b32,b32 m3 c dpp
019   - v_cmp_nge_f32_e64 MD,b32,b32 m3 c dpp
01a   - v_cmp_nlg_f32_e64 MD,b32,b32 m3 c dpp
01b   - v_cmp_ngt_f32_e64 MD,b32,b32 m3 c dpp
01c   - v_cmp_nle_f32_e64 MD,b32,b32 m3 c dpp
01d   - v_cmp_neq_f32_e64 MD,b32,b32 m3 c dpp
01e   - v_cmp_nlt_f32_e64 MD,b32,b32 m3 c dpp
021   - v_cmp_lt_f64_e64 MD,f64,f64 m3 c
022   - v_cmp_eq_f64_e64 MD,f64,f64 m3 c
023   - v_cmp_le_f64_e64 MD,f64,f64 m3 c
024   - v_cmp_gt_f64_e64 MD,f64,f64 m3 c
025   - v_cmp_lg_f64_e64 MD,f64,f64 m3 c
026   - v_cmp_ge_f64_e64 MD,f64,f64 m3 c
027   - v_cmp_o_f64_e64 MD,f64,f64 m3 c
028   - v_cmp_u_f64_e64 MD,f64,f64 m3 c
029   - v_cmp_nge_f64_e64 MD,f64,f64 m3 c
02a   - v_cmp_nlg_f64_e64 MD,f64,f64 m3 c
02b   - v_cmp_ngt_f64_e64 MD,f64,f64 m3 c
02c   - v_cmp_nle_f64_e64 MD,f64,f64 m3 c
02d   - v_cmp_neq_f64_e64 MD,f64,f64 m3 c
02e   - v_cmp_nlt_f64_e64 MD,f64,f64 m3 c
031   - v_cmp_lt_i16_e64 MD,i16,i16 dpp
032   - v_cmp_eq_i16_e64 MD,i16,i16 dpp
033   - v_cmp_le_i16_e64 MD,i16,i16 dpp
034   - v_cmp_gt_i16_e64 MD,i16,i16 dpp
035   - v_cmp_ne_i16_e64 MD,i16,i16 dpp
036   - v_cmp_ge_i16_e64 MD,i16,i16 dpp
039   - v_cmp_lt_u16_e64 MD,i16,i16 dpp
03a   - v_cmp_eq_u16_e64 MD,i16,i16 dpp
03b   - v_cmp_le_u16_e64 MD,i16,i16 dpp
03c   - v_cmp_gt_u16_e64 MD,i16,i16 dpp
03d   - v_cmp_ne_u16_e64 MD,i16,i16 dpp
03e   - v_cmp_ge_u16_e64 MD,i16,i16 dpp
041   - v_cmp_lt_i32_e64 MD,b32,b32 dpp
042   - v_cmp_eq_i32_e64 MD,b32,b32 dpp
043   - v_cmp_le_i32_e64 MD,b32,b32 dpp
044   - v_cmp_gt_i32_e64 MD,b32,b32 dpp
045   - v_cmp_ne_i32_e64 MD,b32,b32 dpp
046   - v_cmp_ge_i32_e64 MD,b32,b32 dpp
049   - v_cmp_lt_u32_e64 MD,b32,b32 dpp
04a   - v_cmp_eq_u32_e64 MD,b32,b32 dpp
04b   - v_cmp_le_u32_e64 MD,b32,b32 dpp
04c   - v_cmp_gt_u32_e64 MD,b32,b32 dpp
04d   - v_cmp_ne_u32_e64 MD,b32,b32 dpp
04e   - v_cmp_ge_u32_e64 MD,b32,b32 dpp
051   - v_cmp_lt_i64_e64 MD,i64,i64
052   - v_cmp_eq_i64_e64 MD,i64,i64
053   - v_cmp_le_i64_e64 MD,i64,i64
054   - v_cmp_gt_i64_e64 MD,i64,i64
055   - v_cmp_ne_i64_e64 MD,i64,i64
056   - v_cmp_ge_i64_e64 MD,i64,i64
059   - v_cmp_lt_u64_e64 MD,i64,i64
05a   - v_cmp_eq_u64_e64 MD,i64,i64
05b   - v_cmp_le_u64_e64 MD,i64,i64
05c   - v_cmp_gt_u64_e64 MD,i64,i64
05d   - v_cmp_ne_u64_e64 MD,i64,i64
05e   - v_cmp_ge_u64_e64 MD,i64,i64
07d   - v_cmp_class_f16_e64 MD,f16,f16 m3 dpp
07e   - v_cmp_class_f32_e64 MD,b32,b32 m1 dpp
07f   - v_cmp_class_f64_e64 MD,f64,b32 m1
081   - v_cmpx_lt_f16_e64 no,f16,f16 m3 c dpp
082   - v_cmpx_eq_f16_e64 no,f16,f16 m3 c dpp
083   - v_cmpx_le_f16_e64 no,f16,f16 m3 c dpp
084   - v_cmpx_gt_f16_e64 no,f16,f16 m3 c dpp
085   - v_cmpx_lg_f16_e64 no,f16,f16 m3 c dpp
086   - v_cmpx_ge_f16_e64 no,f16,f16 m3 c dpp
087   - v_cmpx_o_f16_e64 no,f16,f16 m3 c dpp
088   - v_cmpx_u_f16_e64 no,f16,f16 m3 c dpp
089   - v_cmpx_nge_f16_e64 no,f16,f16 m3 c dpp
08a   - v_cmpx_nlg_f16_e64 no,f16,f16 m3 c dpp
08b   - v_cmpx_ngt_f16_e64 no,f16,f16 m3 c dpp
08c   - v_cmpx_nle_f16_e64 no,f16,f16 m3 c dpp
08d   - v_cmpx_neq_f16_e64 no,f16,f16 m3 c dpp
08e   - v_cmpx_nlt_f16_e64 no,f16,f16 m3 c dpp
091   - v_cmpx_lt_f32_e64 no,b32,b32 m3 c dpp
092   - v_cmpx_eq_f32_e64 no,b32,b32 m3 c dpp
093   - v_cmpx_le_f32_e64 no,b32,b32 m3 c dpp
094   - v_cmpx_gt_f32_e64 no,b32,b32 m3 c dpp
095   - v_cmpx_lg_f32_e64 no,b32,b32 m3 c dpp
096   - v_cmpx_ge_f32_e64 no,b32,b32 m3 c dpp
097   - v_cmpx_o_f32_e64 no,b32,b32 m3 c dpp
098   - v_cmpx_u_f32_e64 no,b32,b32 m3 c dpp
099   - v_cmpx_nge_f32_e64 no,b32,b32 m3 c dpp
09a   - v_cmpx_nlg_f32_e64 no,b32,b32 m3 c dpp
09b   - v_cmpx_ngt_f32_e64 no,b32,b32 m3 c dpp
09c   - v_cmpx_nle_f32_e64 no,b32,b32 m3 c dpp
09d   - v_cmpx_neq_f32_e64 no,b32,b32 m3 c dpp
09e   - v_cmpx_nlt_f32_e64 no,b32,b32 m3 c dpp
0a1   - v_cmpx_lt_f64_e64 no,f64,f64 m3 c
0a2   - v_cmpx_eq_f64_e64 no,f64,f64 m3 c
0a3   - v_cmpx_le_f64_e64 no,f64,f64 m3 c
0a4   - v_cmpx_gt_f64_e64 no,f64,f64 m3 c
0a5   - v_cmpx_lg_f64_e64 no,f64,f64 m3 c
0a6   - v_cmpx_ge_f64_e64 no,f64,f64 m3 c
0a7   - v_cmpx_o_f64_e64 no,f64,f64 m3 c
0a8   - v_cmpx_u_f64_e64 no,f64,f64 m3 c
0a9   - v_cmpx_nge_f64_e64 no,f64,f64 m3 c
0aa   - v_cmpx_nlg_f64_e64 no,f64,f64 m3 c
0ab   - v_cmpx_ngt_f64_e64 no,f64,f64 m3 c
0ac   - v_cmpx_nle_f64_e64 no,f64,f64 m3 c
0ad   - v_cmpx_neq_f64_e64 no,f64,f64 m3 c
0ae   - v_cmpx_nlt_f64_e64 no,f64,f64 m3 c
0b1   - v_cmpx_lt_i16_e64 no,i16,i16 dpp
0b2   - v_cmpx_eq_i16_e64 no,i16,i16 dpp
0b3   - v_cmpx_le_i16_e64 no,i16,i16 dpp
0b4   - v_cmpx_gt_i16_e64 no,i16,i16 dpp
0b5   - v_cmpx_ne_i16_e64 no,i16,i16 dpp
0b6   - v_cmpx_ge_i16_e64 no,i16,i16 dpp
0b9   - v_cmpx_lt_u16_e64 no,i16,i16 dpp
0ba   - v_cmpx_eq_u16_e64 no,i16,i16 dpp
0bb   - v_cmpx_le_u16_e64 no,i16,i16 dpp
0bc   - v_cmpx_gt_u16_e64 no,i16,i16 dpp
0bd   - v_cmpx_ne_u16_e64 no,i16,i16 dpp
0be   - v_cmpx_ge_u16_e64 no,i16,i16 dpp
0c1   - v_cmpx_lt_i32_e64 no,b32,b32 dpp
0c2   - v_cmpx_eq_i32_e64 no,b32,b32 dpp
0c3   - v_cmpx_le_i32_e64 no,b32,b32 dpp
0c4   - v_cmpx_gt_i32_e64 no,b32,b32 dpp
0c5   - v_cmpx_ne_i32_e64 no,b32,b32 dpp
0c6   - v_cmpx_ge_i32_e64 no,b32,b32 dpp
0c9   - v_cmpx_lt_u32_e64 no,b32,b32 dpp
0ca   - v_cmpx_eq_u32_e64 no,b32,b32 dpp
0cb   - v_cmpx_le_u32_e64 no,b32,b32 dpp
0cc   - v_cmpx_gt_u32_e64 no,b32,b32 dpp
0cd   - v_cmpx_ne_u32_e64 no,b32,b32 dpp
0ce   - v_cmpx_ge_u32_e64 no,b32,b32 dpp
0d1   - v_cmpx_lt_i64_e64 no,i64,i64
0d2   - v_cmpx_eq_i64_e64 no,i64,i64
0d3   - v_cmpx_le_i64_e64 no,i64,i64
0d4   - v_cmpx_gt_i64_e64 no,i64,i64
0d5   - v_cmpx_ne_i64_e64 no,i64,i64
0d6   - v_cmpx_ge_i64_e64 no,i64,i64
0d9   - v_cmpx_lt_u64_e64 no,i64,i64
0da   - v_cmpx_eq_u64_e64 no,i64,i64
0db   - v_cmpx_le_u64_e64 no,i64,i64
0dc   - v_cmpx_gt_u64_e64 no,i64,i64
0dd   - v_cmpx_ne_u64_e64 no,i64,i64
0de   - v_cmpx_ge_u64_e64 no,i64,i64
0fd   - v_cmpx_class_f16_e64 no,f16,f16 m3 dpp
0fe   - v_cmpx_class_f32_e64 no,b32,b32 m1 x2 dpp
0ff   - v_cmpx_class_f64_e64 no,f64,b32 m1 x2
101   - v_cndmask_b32_e64 v1,b32,b32,M m3 dpp
102   - v_add_f64_e64 v2,f64,f64 m3 c o
103   - v_add_f32_e64 v1,b32,b32 m3 c o dpp
104   - v_sub_f32_e64 v1,b32,b32 m3 c o dpp
105   - v_subrev_f32_e64 v1,b32,b32 m3 c o dpp
106   - v_mul_f64_e64 v2,f64,f64 m3 c o
107   - v_mul_dx9_zero_f32_e64 v1,b32,b32 m3 c o dpp
108   - v_mul_f32_e64 v1,b32,b32 m3 c o dpp
109   - v_mul_i32_i24_e64 v1,b32,b32 c dpp
10a   - v_mul_hi_i32_i24_e64 v1,b32,b32 dpp
10b   - v_mul_u32_u24_e64 v1,b32,b32 c dpp
10c   - v_mul_hi_u32_u24_e64 v1,b32,b32 dpp
10d   - v_min_num_f64_e64 v2,f64,f64 m3 c o
10e   - v_max_num_f64_e64 v2,f64,f64 m3 c o
111   - v_min_i32_e64 v1,b32,b32 dpp
112   - v_max_i32_e64 v1,b32,b32 dpp
113   - v_min_u32_e64 v1,b32,b32 dpp
114   - v_max_u32_e64 v1,b32,b32 dpp
115   - v_min_num_f32_e64 v1,b32,b32 m3 c o dpp
116   - v_max_num_f32_e64 v1,b32,b32 m3 c o dpp
118   - v_lshlrev_b32_e64 v1,b32,b32 dpp
119   - v_lshrrev_b32_e64 v1,b32,b32 dpp
11a   - v_ashrrev_i32_e64 v1,b32,b32 dpp
11b   - v_and_b32_e64 v1,b32,b32 dpp
11c   - v_or_b32_e64 v1,b32,b32 dpp
11d   - v_xor_b32_e64 v1,b32,b32 dpp
11e   - v_xnor_b32_e64 v1,b32,b32 dpp
11f   - v_lshlrev_b64_e64 v2,b32,i64
120   - v_add_co_ci_u32_e64 v1,+MD,b32,b32,M c dpp
121   - v_sub_co_ci_u32_e64 v1,+MD,b32,b32,M c dpp
122   - v_subrev_co_ci_u32_e64 v1,+MD,b32,b32,M c dpp
125   - v_add_nc_u32_e64 v1,b32,b32 c dpp
126   - v_sub_nc_u32_e64 v1,b32,b32 c dpp
127   - v_subrev_nc_u32_e64 v1,b32,b32 c dpp
12b   - v_fmac_f32_e64 v1,b32,b32 m3 c o dpp
12f   - v_cvt_pk_rtz_f16_f32_e64 v1,b32,b32 m3 c o dpp
130   - v_min_num_f16_e64 v1,f16,f16 m3 c o dpp
131   - v_max_num_f16_e64 v1,f16,f16 m3 c o dpp
132   - v_add_f16_e64 v1,f16,f16 m3 c o dpp
133   - v_sub_f16_e64 v1,f16,f16 m3 c o dpp
134   - v_subrev_f16_e64 v1,f16,f16 m3 c o dpp
135   - v_mul_f16_e64 v1,f16,f16 m3 c o dpp
136   - v_fmac_f16_e64 v1,f16,f16 m3 c o dpp
13b   - v_ldexp_f16_e64 v1,f16,f16 m1 x2 c o dpp
181   - v_mov_b32_e64 v1,b32 dpp
183   - v_cvt_i32_f64_e64 v1,f64 m1 c o
184   - v_cvt_f64_i32_e64 v2,b32 c o
185   - v_cvt_f32_i32_e64 v1,b32 c o dpp
186   - v_cvt_f32_u32_e64 v1,b32 c o dpp
187   - v_cvt_u32_f32_e64 v1,b32 m1 c o dpp
188   - v_cvt_i32_f32_e64 v1,b32 m1 c o dpp
18a   - v_cvt_f16_f32_e64 v1,b32 m1 c o dpp
18b   - v_cvt_f32_f16_e64 v1,f16 m1 c o dpp
18c   - v_cvt_nearest_i32_f32_e64 v1,b32 m1 c dpp
18d   - v_cvt_floor_i32_f32_e64 v1,b32 m1 c dpp
18e   - v_cvt_off_f32_i4_e64 v1,b32 c o dpp
18f   - v_cvt_f32_f64_e64 v1,f64 m1 c o
190   - v_cvt_f64_f32_e64 v2,b32 m1 c o
191   - v_cvt_f32_ubyte0_e64 v1,b32 c o dpp
192   - v_cvt_f32_ubyte1_e64 v1,b32 c o dpp
193   - v_cvt_f32_ubyte2_e64 v1,b32 c o dpp
194   - v_cvt_f32_ubyte3_e64 v1,b32 c o dpp
195   - v_cvt_u32_f64_e64 v1,f64 m1 c o
196   - v_cvt_f64_u32_e64 v2,b32 c o
197   - v_trunc_f64_e64 v2,f64 m1 c o
198   - v_ceil_f64_e64 v2,f64 m1 c o
199   - v_rndne_f64_e64 v2,f64 m1 c o
19a   - v_floor_f64_e64 v2,f64 m1 c o
1a0   - v_fract_f32_e64 v1,b32 m1 c o dpp
1a1   - v_trunc_f32_e64 v1,b32 m1 c o dpp
1a2   - v_ceil_f32_e64 v1,b32 m1 c o dpp
1a3   - v_rndne_f32_e64 v1,b32 m1 c o dpp
1a4   - v_floor_f32_e64 v1,b32 m1 c o dpp
1a5   - v_exp_f32_e64 v1,b32 m1 c o dpp
1a7   - v_log_f32_e64 v1,b32 m1 c o dpp
1aa   - v_rcp_f32_e64 v1,b32 m1 c o dpp
1ab   - v_rcp_iflag_f32_e64 v1,b32 m1 c o dpp
1ae   - v_rsq_f32_e64 v1,b32 m1 c o dpp
1af   - v_rcp_f64_e64 v2,f64 m1 c o
1b1   - v_rsq_f64_e64 v2,f64 m1 c o
1b3   - v_sqrt_f32_e64 v1,b32 m1 c o dpp
1b4   - v_sqrt_f64_e64 v2,f64 m1 c o
1b5   - v_sin_f32_e64 v1,b32 m1 c o dpp
1b6   - v_cos_f32_e64 v1,b32 m1 c o dpp
1b7   - v_not_b32_e64 v1,b32 dpp
1b8   - v_bfrev_b32_e64 v1,b32 dpp
1b9   - v_clz_i32_u32_e64 v1,b32 dpp
1ba   - v_ctz_i32_b32_e64 v1,b32 dpp
1bb   - v_cls_i32_e64 v1,b32 dpp
1bc   - v_frexp_exp_i32_f64_e64 v1,f64 m1 c o
1bd   - v_frexp_mant_f64_e64 v2,f64 m1 c o
1be   - v_fract_f64_e64 v2,f64 m1 c o
1bf   - v_frexp_exp_i32_f32_e64 v1,b32 m1 c dpp
1c0   - v_frexp_mant_f32_e64 v1,b32 m1 c o dpp
1c2   - v_movreld_b32_e64 v1,b32 dpp
1c3   - v_movrels_b32_e64 v1,V1 dpp
1c4   - v_movrelsd_b32_e64 v1,V1 dpp
1c8   - v_movrelsd_2_b32_e64 v1,V1 dpp
1d0   - v_cvt_f16_u16_e64 v1,i16 c o dpp
1d1   - v_cvt_f16_i16_e64 v1,i16 c o dpp
1d2   - v_cvt_u16_f16_e64 v1,f16 m1 c o dpp
1d3   - v_cvt_i16_f16_e64 v1,f16 m1 c o dpp
1d4   - v_rcp_f16_e64 v1,f16 m1 c o dpp
1d5   - v_sqrt_f16_e64 v1,f16 m1 c o dpp
1d6   - v_rsq_f16_e64 v1,f16 m1 c o dpp
1d7   - v_log_f16_e64 v1,f16 m1 c o dpp
1d8   - v_exp_f16_e64 v1,f16 m1 c o dpp
1d9   - v_frexp_mant_f16_e64 v1,f16 m1 c o dpp
1da   - v_frexp_exp_i16_f16_e64 v1,f16 m1 c o dpp
1db   - v_floor_f16_e64 v1,f16 m1 c o dpp
1dc   - v_ceil_f16_e64 v1,f16 m1 c o dpp
1dd   - v_trunc_f16_e64 v1,f16 m1 c o dpp
1de   - v_rndne_f16_e64 v1,f16 m1 c o dpp
1df   - v_fract_f16_e64 v1,f16 m1 c o dpp
1e0   - v_sin_f16_e64 v1,f16 m1 c o dpp
1e1   - v_cos_f16_e64 v1,f16 m1 c o dpp
1e2   - v_sat_pk_u8_i16_e64 v1,b32 dpp
1e3   - v_cvt_norm_i16_f16_e64 v1,f16 m1 c o dpp
1e4   - v_cvt_norm_u16_f16_e64 v1,f16 m1 c o dpp
1e9   - v_not_b16_e64 v1,i16 dpp
1ea   - v_cvt_i32_i16_e64 v1,i16 dpp
1eb   - v_cvt_u32_u16_e64 v1,i16 dpp
1ec   - v_cvt_f32_fp8_e64 v1,b32 byte0 dpp
1ed   - v_cvt_f32_bf8_e64 v1,b32 byte0 dpp
1ee   - v_cvt_pk_f32_fp8_e64 v2,f16 x1 s1001
1ef   - v_cvt_pk_f32_bf8_e64 v2,f16 x1 s1001
209   - v_fma_dx9_zero_f32 v1,b32,b32,b32 m7 c o
20a   - v_mad_i32_i24 v1,b32,b32,b32 c dpp
20b   - v_mad_u32_u24 v1,b32,b32,b32 c dpp
20c   - v_cubeid_f32 v1,b32,b32,b32 m7 c o dpp
20d   - v_cubesc_f32 v1,b32,b32,b32 m7 c o dpp
20e   - v_cubetc_f32 v1,b32,b32,b32 m7 c o dpp
20f   - v_cubema_f32 v1,b32,b32,b32 m7 c o dpp
210   - v_bfe_u32 v1,b32,b32,b32 dpp
211   - v_bfe_i32 v1,b32,b32,b32 dpp
212   - v_bfi_b32 v1,b32,b32,b32 dpp
213   - v_fma_f32 v1,b32,b32,b32 m7 c o dpp
214   - v_fma_f64 v2,f64,f64,f64 m7 c o
215   - v_lerp_u8 v1,b32,b32,b32 dpp
216   - v_alignbit_b32 v1,b32,b32,i16 x7 c s1111 dpp
217   - v_alignbyte_b32 v1,b32,b32,i16 x7 c s1111 dpp
218   - v_mullit_f32 v1,b32,b32,b32 m7 c o dpp
21a   - v_min3_i32 v1,b32,b32,b32 dpp
21b   - v_min3_u32 v1,b32,b32,b32 dpp
21d   - v_max3_i32 v1,b32,b32,b32 dpp
21e   - v_max3_u32 v1,b32,b32,b32 dpp
220   - v_med3_i32 v1,b32,b32,b32 dpp
221   - v_med3_u32 v1,b32,b32,b32 dpp
222   - v_sad_u8 v1,b32,b32,b32 c dpp
223   - v_sad_hi_u8 v1,b32,b32,b32 c dpp
224   - v_sad_u16 v1,b32,b32,b32 c dpp
225   - v_sad_u32 v1,b32,b32,b32 c dpp
226   - v_cvt_pk_u8_f32 v1,b32,b32,b32 m1 x6 c dpp
227   - v_div_fixup_f32 v1,b32,b32,b32 m7 c o
228   - v_div_fixup_f64 v2,f64,f64,f64 m7 c o
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
237   - v_div_fmas_f32 v1,b32,b32,b32 m7 c o
238   - v_div_fmas_f64 v2,f64,f64,f64 m7 c o
239   - v_msad_u8 v1,b32,b32,b32 c dpp
23a   - v_qsad_pk_u16_u8 v2,i64,b32,i64 c
23b   - v_mqsad_pk_u16_u8 v2,i64,b32,i64 c
23d   - v_mqsad_u32_u8 v4,i64,b32,V4 c
240   - v_xor3_b32 v1,b32,b32,b32 dpp
241   - v_mad_u16 v1,i16,i16,i16 x7 c s1111 dpp
244   - v_perm_b32 v1,b32,b32,b32 dpp
245   - v_xad_u32 v1,b32,b32,b32 dpp
246   - v_lshl_add_u32 v1,b32,b32,b32 dpp
247   - v_add_lshl_u32 v1,b32,b32,b32 dpp
248   - v_fma_f16 v1,f16,f16,f16 m7 c o s1111 dpp
24a   - v_min3_i16 v1,i16,i16,i16 x7 c s1111 dpp
24b   - v_min3_u16 v1,i16,i16,i16 x7 c s1111 dpp
24d   - v_max3_i16 v1,i16,i16,i16 x7 c s1111 dpp
24e   - v_max3_u16 v1,i16,i16,i16 x7 c s1111 dpp
250   - v_med3_i16 v1,i16,i16,i16 x7 c s1111 dpp
251   - v_med3_u16 v1,i16,i16,i16 x7 c s1111 dpp
253   - v_mad_i16 v1,i16,i16,i16 x7 c s1111 dpp
254   - v_div_fixup_f16 v1,f16,f16,f16 m7 c o s1111 dpp
255   - v_add3_u32 v1,b32,b32,b32 dpp
256   - v_lshl_or_b32 v1,b32,b32,b32 dpp
257   - v_and_or_b32 v1,b32,b32,b32 dpp
258   - v_or3_b32 v1,b32,b32,b32 dpp
259   - v_mad_u32_u16 v1,i16,i16,b32 x7 c s1111 dpp
25a   - v_mad_i32_i16 v1,i16,i16,b32 x7 c s1111 dpp
25b   - v_permlane16_b32 v1,V1,s32,s32 s11ii
25c   - v_permlanex16_b32 v1,V1,s32,s32 s11ii
25d   - v_cndmask_b16 v1,i16,i16,M m3 dpp
262   - v_maxmin_u32 v1,b32,b32,b32 dpp
263   - v_minmax_u32 v1,b32,b32,b32 dpp
264   - v_maxmin_i32 v1,b32,b32,b32 dpp
265   - v_minmax_i32 v1,b32,b32,b32 dpp
266   - v_dot2_f16_f16 v1,b32,b32,f16 m7 szz11 dpp
267   - v_dot2_bf16_bf16 v1,b32,b32,b32 m7 szz11 dpp
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
2fc   - v_div_scale_f32 v1,+MD,b32,b32,b32 n7 c o
2fd   - v_div_scale_f64 v2,+MD,f64,f64,f64 n7 c o
2fe   - v_mad_co_u64_u32 v2,+MD,b32,b32,i64 c
2ff   - v_mad_co_i64_i32 v2,+MD,b32,b32,i64 c
300   - v_add_co_u32 v1,+MD,b32,b32 c dpp
301   - v_sub_co_u32 v1,+MD,b32,b32 c dpp
302   - v_subrev_co_u32 v1,+MD,b32,b32 c dpp
303   - v_add_nc_u16 v1,i16,i16 x3 c s1101 dpp
304   - v_sub_nc_u16 v1,i16,i16 x3 c s1101 dpp
305   - v_mul_lo_u16 v1,i16,i16 dpp
306   - v_cvt_pk_i16_f32 v1,b32,b32 m3 c dpp
307   - v_cvt_pk_u16_f32 v1,b32,b32 m3 c dpp
309   - v_max_u16 v1,i16,i16 dpp
30a   - v_max_i16 v1,i16,i16 dpp
30b   - v_min_u16 v1,i16,i16 dpp
30c   - v_min_i16 v1,i16,i16 dpp
30d   - v_add_nc_i16 v1,i16,i16 x3 c s1101 dpp
30e   - v_sub_nc_i16 v1,i16,i16 x3 c s1101 dpp
30f   - v_permlane16_var_b32 v1,V1,V1 s110i
310   - v_permlanex16_var_b32 v1,V1,V1 s110i
311   - v_pack_b32_f16 v1,f16,f16 m3 c s1101 dpp
312   - v_cvt_pk_norm_i16_f16 v1,f16,f16 m3 c s1101 dpp
313   - v_cvt_pk_norm_u16_f16 v1,f16,f16 m3 c s1101 dpp
31c   - v_ldexp_f32 v1,b32,b32 m1 x2 c o dpp
31d   - v_bfm_b32 v1,b32,b32 dpp
31e   - v_bcnt_u32_b32 v1,b32,b32 dpp
31f   - v_mbcnt_lo_u32_b32 v1,b32,b32 dpp
320   - v_mbcnt_hi_u32_b32 v1,b32,b32 dpp
321   - v_cvt_pk_norm_i16_f32 v1,b32,b32 m3 c dpp
322   - v_cvt_pk_norm_u16_f32 v1,b32,b32 m3 c dpp
323   - v_cvt_pk_u16_u32 v1,b32,b32 dpp
324   - v_cvt_pk_i16_i32 v1,b32,b32 dpp
325   - v_sub_nc_i32 v1,b32,b32 c dpp
326   - v_add_nc_i32 v1,b32,b32 c dpp
32b   - v_ldexp_f64 v2,f64,b32 m1 x2 c o
32c   - v_mul_lo_u32 v1,b32,b32
32d   - v_mul_hi_u32 v1,b32,b32
32e   - v_mul_hi_i32 v1,b32,b32
32f   - v_trig_preop_f64 v2,f64,b32 m1 x2 c o
338   - v_lshlrev_b16 v1,i16,i16 dpp
339   - v_lshrrev_b16 v1,i16,i16 dpp
33a   - v_ashrrev_i16 v1,i16,i16 dpp
33d   - v_lshrrev_b64 v2,b32,i64
33e   - v_ashrrev_i64 v2,b32,i64
341   - v_minimum_f64 v2,f64,f64 m3 c o
342   - v_maximum_f64 v2,f64,f64 m3 c o
360   - v_readlane_b32 D0,VL,s32
361   - v_writelane_b32 v1,SL,s32
362   - v_and_b16 v1,i16,i16 dpp
363   - v_or_b16 v1,i16,i16 dpp
364   - v_xor_b16 v1,i16,i16 dpp
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
