"""Memory opcodes: gfx12, gfx11, mnemonic, operands, flags, facts. See rows.py and the decoders named by encoding.

A VMEM row covers several segments: f flat_, g global_, s scratch_, b buffer_, t tbuffer_.
"""

ROWS = {
    "DS": """
00 00 ds_add_u32 a1,x1 rtn20
01 01 ds_sub_u32 a1,x1 rtn21
02 02 ds_rsub_u32 a1,x1 rtn22
03 03 ds_inc_u32 a1,x1 rtn23
04 04 ds_dec_u32 a1,x1 rtn24
05 05 ds_min_i32 a1,x1 rtn25
06 06 ds_max_i32 a1,x1 rtn26
07 07 ds_min_u32 a1,x1 rtn27
08 08 ds_max_u32 a1,x1 rtn28
09 09 ds_and_b32 a1,x1 rtn29
0a 0a ds_or_b32 a1,x1 rtn2a
0b 0b ds_xor_b32 a1,x1 rtn2b
0c 0c ds_mskor_b32 a1,x1,y1 rtn2c
0d 0d ds_store_b32 a1,x1
0e 0e ds_store_2addr_b32 a1,x1,y1 two
0f 0f ds_store_2addr_stride64_b32 a1,x1,y1 two stride64
10 10 ds_cmpstore_b32 a1,x1,y1 rtn30
12  - ds_min_num_f32 a1,x1 rtn32
13  - ds_max_num_f32 a1,x1 rtn33
14 14 ds_nop - zero nolds #none
15 15 ds_add_f32 a1,x1 rtn79
1e 1e ds_store_b8 a1,x1 lo
1f 1f ds_store_b16 a1,x1 lo
2d 2d ds_storexchg_rtn_b32 d1,a1,x1
2e 2e ds_storexchg_2addr_rtn_b32 d2,a1,x1,y1 two
2f 2f ds_storexchg_2addr_stride64_rtn_b32 d2,a1,x1,y1 two stride64
35 35 ds_swizzle_b32 d1,a1 swizzle nolds
36 36 ds_load_b32 d1,a1
37 37 ds_load_2addr_b32 d2,a1 two
38 38 ds_load_2addr_stride64_b32 d2,a1 two stride64
39 39 ds_load_i8 d1,a1
3a 3a ds_load_u8 d1,a1
3b 3b ds_load_i16 d1,a1
3c 3c ds_load_u16 d1,a1
3d 3d ds_consume d1
3e 3e ds_append d1
40 40 ds_add_u64 a1,x2 rtn60
41 41 ds_sub_u64 a1,x2 rtn61
42 42 ds_rsub_u64 a1,x2 rtn62
43 43 ds_inc_u64 a1,x2 rtn63
44 44 ds_dec_u64 a1,x2 rtn64
45 45 ds_min_i64 a1,x2 rtn65
46 46 ds_max_i64 a1,x2 rtn66
47 47 ds_min_u64 a1,x2 rtn67
48 48 ds_max_u64 a1,x2 rtn68
49 49 ds_and_b64 a1,x2 rtn69
4a 4a ds_or_b64 a1,x2 rtn6a
4b 4b ds_xor_b64 a1,x2 rtn6b
4c 4c ds_mskor_b64 a1,x2,y2 rtn6c
4d 4d ds_store_b64 a1,x2
4e 4e ds_store_2addr_b64 a1,x2,y2 two
4f 4f ds_store_2addr_stride64_b64 a1,x2,y2 two stride64
50 50 ds_cmpstore_b64 a1,x2,y2 rtn70
52  - ds_min_num_f64 a1,x2 rtn72
53  - ds_max_num_f64 a1,x2 rtn73
6d 6d ds_storexchg_rtn_b64 d2,a1,x2
6e 6e ds_storexchg_2addr_rtn_b64 d4,a1,x2,y2 two
6f 6f ds_storexchg_2addr_stride64_rtn_b64 d4,a1,x2,y2 two stride64
76 76 ds_load_b64 d2,a1
77 77 ds_load_2addr_b64 d4,a1 two
78 78 ds_load_2addr_stride64_b64 d4,a1 two stride64
7e 7e ds_condxchg32_rtn_b64 d2,a1,x2
98  - ds_cond_sub_u32 a1,x1 rtna8
99  - ds_sub_clamp_u32 a1,x1 rtna9
9a  - ds_pk_add_f16 a1,x1 rtnaa
9b  - ds_pk_add_bf16 a1,x1 rtnab
a0 a0 ds_store_b8_d16_hi a1,x1 hi
a1 a1 ds_store_b16_d16_hi a1,x1 hi
a2 a2 ds_load_u8_d16 d1,a1 lo
a3 a3 ds_load_u8_d16_hi d1,a1 hi
a4 a4 ds_load_i8_d16 d1,a1 lo
a5 a5 ds_load_i8_d16_hi d1,a1 hi
a6 a6 ds_load_u16_d16 d1,a1 lo
a7 a7 ds_load_u16_d16_hi d1,a1 hi
b0 b0 ds_store_addtid_b32 x1 <m0
b1 b1 ds_load_addtid_b32 d1 <m0
b2  - ds_permute_b32 d1,a1,x1 nolds
b3  - ds_bpermute_b32 d1,a1,x1 nolds
cd  - ds_bpermute_fi_b32 d1,a1,x1 nolds
de de ds_store_b96 a1,x3
df df ds_store_b128 a1,x4
e0  - ds_bvh_stack_push4_pop1_rtn_b32 d1,a1,x1,y4 >src
e1  - ds_bvh_stack_push8_pop1_rtn_b32 d1,a1,x1,y8 >src
e2  - ds_bvh_stack_push8_pop2_rtn_b64 d2,a1,x1,y8 >src
fe fe ds_load_b96 d3,a1
ff ff ds_load_b128 d4,a1
 - 11 ds_cmpstore_f32 a1,x1,y1 rtn31
 - 12 ds_min_f32 a1,x1 rtn32
 - 13 ds_max_f32 a1,x1 rtn33
 - 18 ds_gws_sema_release_all - gds
 - 19 ds_gws_init a1 gds
 - 1a ds_gws_sema_v - gds
 - 1b ds_gws_sema_br a1 gds
 - 1c ds_gws_sema_p - gds
 - 1d ds_gws_barrier a1 gds
 - 34 ds_wrap_rtn_b32 d1,a1,x1,y1
 - 3f ds_ordered_count d1,a1 gds
 - 51 ds_cmpstore_f64 a1,x2,y2 rtn71
 - 52 ds_min_f64 a1,x2 rtn72
 - 53 ds_max_f64 a1,x2 rtn73
 - 7a ds_add_gs_reg_rtn d2,x1 gds
 - 7b ds_sub_gs_reg_rtn d2,x1 gds
 - ad ds_bvh_stack_rtn_b32 d1,a1,x1,y4 nogds >src
 - b2 ds_permute_b32 d1,a1,x1 nogds nolds
 - b3 ds_bpermute_b32 d1,a1,x1 nogds nolds
""",
    "VMEM": """
00 00 b:load_format_x d1 load
01 01 b:load_format_xy d2 load
02 02 b:load_format_xyz d3 load
03 03 b:load_format_xyzw d4 load
04 04 b:store_format_x x1 store
05 05 b:store_format_xy x2 store
06 06 b:store_format_xyz x3 store
07 07 b:store_format_xyzw x4 store
08 08 b:load_d16_format_x d1 load lo
09 09 b:load_d16_format_xy d1 load
0a 0a b:load_d16_format_xyz d2 load
0b 0b b:load_d16_format_xyzw d2 load
0c 0c b:store_d16_format_x x1 store lo
0d 0d b:store_d16_format_xy x1 store
0e 0e b:store_d16_format_xyz x2 store
0f 0f b:store_d16_format_xyzw x2 store
10 10 fgsb:load_u8 d1 load
11 11 fgsb:load_i8 d1 load
12 12 fgsb:load_u16 d1 load
13 13 fgsb:load_i16 d1 load
14 14 fgsb:load_b32 d1 load
15 15 fgsb:load_b64 d2 load
16 16 fgsb:load_b96 d3 load
17 17 fgsb:load_b128 d4 load
18 18 fgsb:store_b8 x1 store lo
19 19 fgsb:store_b16 x1 store lo
1a 1a fgsb:store_b32 x1 store
1b 1b fgsb:store_b64 x2 store
1c 1c fgsb:store_b96 x3 store
1d 1d fgsb:store_b128 x4 store
1e 1e fgsb:load_d16_u8 d1 load lo
1f 1f fgsb:load_d16_i8 d1 load lo
20 20 fgsb:load_d16_b16 d1 load lo
21 21 fgsb:load_d16_hi_u8 d1 load hi
22 22 fgsb:load_d16_hi_i8 d1 load hi
23 23 fgsb:load_d16_hi_b16 d1 load hi
24 24 fgsb:store_d16_hi_b8 x1 store hi
25 25 fgsb:store_d16_hi_b16 x1 store hi
26 26 b:load_d16_hi_format_x d1 load hi
27 27 b:store_d16_hi_format_x x1 store hi
28 28 g:load_addtid_b32 d1 load addtid
29 29 g:store_addtid_b32 x1 store addtid
2b  - g:inv - load plain %cache #loadcnt
 - 2b b:gl0_inv - load %cache #none
2c  - g:wb - load plain %cache
 - 2c b:gl1_inv - load %cache #none
 - 2d b:load_lds_u8 - load lds <m0
 - 2e b:load_lds_i8 - load lds <m0
 - 2f b:load_lds_u16 - load lds <m0
 - 30 b:load_lds_i16 - load lds <m0
 - 31 b:load_lds_b32 - load lds <m0
 - 32 b:load_lds_format_x - load lds <m0
33 33 fgb:atomic_swap_b32 d1,x1 atomic
34 34 fgb:atomic_cmpswap_b32 d1,x2 atomic
35 35 fgb:atomic_add_u32 d1,x1 atomic
36 36 fgb:atomic_sub_u32 d1,x1 atomic
37  - fgb:atomic_sub_clamp_u32 d1,x1 atomic
 - 37 gb:atomic_csub_u32 d1,x1 atomic
38 38 fgb:atomic_min_i32 d1,x1 atomic
39 39 fgb:atomic_min_u32 d1,x1 atomic
3a 3a fgb:atomic_max_i32 d1,x1 atomic
3b 3b fgb:atomic_max_u32 d1,x1 atomic
3c 3c fgb:atomic_and_b32 d1,x1 atomic
3d 3d fgb:atomic_or_b32 d1,x1 atomic
3e 3e fgb:atomic_xor_b32 d1,x1 atomic
3f 3f fgb:atomic_inc_u32 d1,x1 atomic
40 40 fgb:atomic_dec_u32 d1,x1 atomic
41 41 fgb:atomic_swap_b64 d2,x2 atomic
42 42 fgb:atomic_cmpswap_b64 d2,x4 atomic
43 43 fgb:atomic_add_u64 d2,x2 atomic
44 44 fgb:atomic_sub_u64 d2,x2 atomic
45 45 fgb:atomic_min_i64 d2,x2 atomic
46 46 fgb:atomic_min_u64 d2,x2 atomic
47 47 fgb:atomic_max_i64 d2,x2 atomic
48 48 fgb:atomic_max_u64 d2,x2 atomic
49 49 fgb:atomic_and_b64 d2,x2 atomic
4a 4a fgb:atomic_or_b64 d2,x2 atomic
4b 4b fgb:atomic_xor_b64 d2,x2 atomic
4c 4c fgb:atomic_inc_u64 d2,x2 atomic
4d 4d fgb:atomic_dec_u64 d2,x2 atomic
4f  - g:wbinv - load plain %cache
50  - fgb:atomic_cond_sub_u32 d1,x1 atomic
 - 50 fgb:atomic_cmpswap_f32 d1,x2 atomic
51  - fgb:atomic_min_num_f32 d1,x1 atomic
 - 51 fgb:atomic_min_f32 d1,x1 atomic
52  - fgb:atomic_max_num_f32 d1,x1 atomic
 - 52 fgb:atomic_max_f32 d1,x1 atomic
53  - gs:load_block d32 load
54  - gs:store_block x32 store
56 56 fgb:atomic_add_f32 d1,x1 atomic
57  - g:load_tr_b128 d4/2 load
58  - g:load_tr_b64 d2/1 load
59  - fgb:atomic_pk_add_f16 d1,x1 atomic
5a  - fgb:atomic_pk_add_bf16 d1,x1 atomic
73  - g:atomic_ordered_add_b64 d2,x2 atomic
80 00 t:load_format_x d1 load typed
81 01 t:load_format_xy d2 load typed
82 02 t:load_format_xyz d3 load typed
83 03 t:load_format_xyzw d4 load typed
84 04 t:store_format_x x1 store typed
85 05 t:store_format_xy x2 store typed
86 06 t:store_format_xyz x3 store typed
87 07 t:store_format_xyzw x4 store typed
88 08 t:load_d16_format_x d1 load typed lo
89 09 t:load_d16_format_xy d1 load typed
8a 0a t:load_d16_format_xyz d2 load typed
8b 0b t:load_d16_format_xyzw d2 load typed
8c 0c t:store_d16_format_x x1 store typed lo
8d 0d t:store_d16_format_xy x1 store typed
8e 0e t:store_d16_format_xyz x2 store typed
8f 0f t:store_d16_format_xyzw x2 store typed
""",
    "SMEM": """
00 00 s_load_b32 d1,b2
01 01 s_load_b64 d2,b2
02 02 s_load_b128 d4,b2
03 03 s_load_b256 d8,b2
04 04 s_load_b512 d16,b2
05  - s_load_b96 d3,b2
08  - s_load_i8 d1,b2
09  - s_load_u8 d1,b2
0a  - s_load_i16 d1,b2
0b  - s_load_u16 d1,b2
10 08 s_buffer_load_b32 d1,b4 unsigned
11 09 s_buffer_load_b64 d2,b4 unsigned
12 0a s_buffer_load_b128 d4,b4 unsigned
13 0b s_buffer_load_b256 d8,b4 unsigned
14 0c s_buffer_load_b512 d16,b4 unsigned
15  - s_buffer_load_b96 d3,b4 unsigned
18  - s_buffer_load_i8 d1,b4 unsigned
19  - s_buffer_load_u8 d1,b4 unsigned
1a  - s_buffer_load_i16 d1,b4 unsigned
1b  - s_buffer_load_u16 d1,b4 unsigned
21 21 s_dcache_inv -
22 22 s_atc_probe i,b2 probe
23 23 s_atc_probe_buffer i,b4 probe unsigned
24  - s_prefetch_inst b2 probe prefetch #none
25  - s_prefetch_inst_pc_rel pc probe prefetch #none
26  - s_prefetch_data b2 probe prefetch #none
27  - s_buffer_prefetch_data b4 probe prefetch unsigned #none
28  - s_prefetch_data_pc_rel pc probe prefetch #none
 - 20 s_gl1_inv -
""",
}
