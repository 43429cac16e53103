"""Opcodes of graphics: gfx12, gfx11, mnemonic, operands, flags, facts.

MIMG of gfx11 has the rows of VIMAGE and VSAMPLE. See rows.py, encodings/image.py, encodings/image_gfx11.py and
encodings/graphics.py.
"""

ROWS = {
    "VIMAGE": """
00 00 image_load - load
01 01 image_load_mip - load lod
02 02 image_load_pck - load nod16
03 03 image_load_pck_sgn - load nod16
04 04 image_load_mip_pck - load lod nod16
05 05 image_load_mip_pck_sgn - load lod nod16
06 06 image_store - store
07 07 image_store_mip - store lod
08 08 image_store_pck - store nod16
09 09 image_store_mip_pck - store lod nod16
0a 0a image_atomic_swap - atomic nod16
0b 0b image_atomic_cmpswap - atomic nod16 cmpswap
0c  - image_atomic_add_uint - atomic nod16
 - 0c image_atomic_add - atomic nod16
0d  - image_atomic_sub_uint - atomic nod16
 - 0d image_atomic_sub - atomic nod16
0e  - image_atomic_min_int - atomic nod16
 - 0e image_atomic_smin - atomic nod16
0f  - image_atomic_min_uint - atomic nod16
 - 0f image_atomic_umin - atomic nod16
10  - image_atomic_max_int - atomic nod16
 - 10 image_atomic_smax - atomic nod16
11  - image_atomic_max_uint - atomic nod16
 - 11 image_atomic_umax - atomic nod16
12 12 image_atomic_and - atomic nod16
13 13 image_atomic_or - atomic nod16
14 14 image_atomic_xor - atomic nod16
15  - image_atomic_inc_uint - atomic nod16
 - 15 image_atomic_inc - atomic nod16
16  - image_atomic_dec_uint - atomic nod16
 - 16 image_atomic_dec - atomic nod16
17 17 image_get_resinfo - load nocoords lod nod16
19 19 image_bvh_intersect_ray 4,1,1,3,3,3 load packed16 bvh #bvhcnt
1a 1a image_bvh64_intersect_ray 4,2,1,3,3,3 load packed16 bvh #bvhcnt
80  - image_bvh_dual_intersect_ray 10,2,2,3,3,2 load bvh #bvhcnt
81  - image_bvh8_intersect_ray 10,2,2,3,3,1 load bvh #bvhcnt
83  - image_atomic_add_flt - atomic nod16
84  - image_atomic_min_flt - atomic nod16
85  - image_atomic_max_flt - atomic nod16
86  - image_atomic_pk_add_f16 - atomic nod16
87  - image_atomic_pk_add_bf16 - atomic nod16
""",
    "VSAMPLE": """
18 18 image_msaa_load - load four nosampler
1b 1b image_sample - load
1c 1c image_sample_d - load grad
1d 1d image_sample_l - load lod
1e 1e image_sample_b - load x1
1f 1f image_sample_lz - load
20 20 image_sample_c - load x1
21 21 image_sample_c_d - load x1 grad
22 22 image_sample_c_l - load x1 lod
23 23 image_sample_c_b - load x2
24 24 image_sample_c_lz - load x1
25 25 image_sample_o - load x1
26 26 image_sample_d_o - load x1 grad
27 27 image_sample_l_o - load x1 lod
28 28 image_sample_b_o - load x2
29 29 image_sample_lz_o - load x1
2a 2a image_sample_c_o - load x2
2b 2b image_sample_c_d_o - load x2 grad
2c 2c image_sample_c_l_o - load x2 lod
2d 2d image_sample_c_b_o - load x3
2e 2e image_sample_c_lz_o - load x2
2f 2f image_gather4 - load four
30 30 image_gather4_l - load lod four
31 31 image_gather4_b - load x1 four
32 32 image_gather4_lz - load four
33 33 image_gather4_c - load x1 four
34 34 image_gather4_c_lz - load x1 four
35 35 image_gather4_o - load x1 four
36 36 image_gather4_lz_o - load x1 four
37 37 image_gather4_c_lz_o - load x2 four
38 38 image_get_lod - load nod16
39 39 image_sample_d_g16 - load grad g16
3a 3a image_sample_c_d_g16 - load x1 grad g16
3b 3b image_sample_d_o_g16 - load x1 grad g16
3c 3c image_sample_c_d_o_g16 - load x2 grad g16
40 40 image_sample_cl - load lod
41 41 image_sample_d_cl - load lod grad
42 42 image_sample_b_cl - load x1 lod
43 43 image_sample_c_cl - load x1 lod
44 44 image_sample_c_d_cl - load x1 lod grad
45 45 image_sample_c_b_cl - load x2 lod
46 46 image_sample_cl_o - load x1 lod
47 47 image_sample_d_cl_o - load x1 lod grad
48 48 image_sample_b_cl_o - load x2 lod
49 49 image_sample_c_cl_o - load x2 lod
4a 4a image_sample_c_d_cl_o - load x2 lod grad
4b 4b image_sample_c_b_cl_o - load x3 lod
54 54 image_sample_c_d_cl_g16 - load x1 lod grad g16
55 55 image_sample_d_cl_o_g16 - load x1 lod grad g16
56 56 image_sample_c_d_cl_o_g16 - load x2 lod grad g16
5f 5f image_sample_d_cl_g16 - load lod grad g16
60 60 image_gather4_cl - load lod four
61 61 image_gather4_b_cl - load x1 lod four
62 62 image_gather4_c_cl - load x1 lod four
63 63 image_gather4_c_l - load x1 lod four
64 64 image_gather4_c_b - load x2 four
65 65 image_gather4_c_b_cl - load x2 lod four
90 90 image_gather4h - load four
""",
    "VINTERP": """
00 00 v_interp_p10_f32 -
01 01 v_interp_p2_f32 -
02 02 v_interp_p10_f16_f32 - sel h5
03 03 v_interp_p2_f16_f32 - sel h9
04 04 v_interp_p10_rtz_f16_f32 - sel h5
05 05 v_interp_p2_rtz_f16_f32 - sel h9
""",
    "VDSDIR": """
00  - ds_param_load -
01  - ds_direct_load -
""",
    "LDSDIR": """
 - 00 lds_param_load -
 - 01 lds_direct_load -
""",
    "EXP": """
00  - export -
 - 00 exp -
""",
}
