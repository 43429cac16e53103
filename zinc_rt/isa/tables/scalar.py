"""Scalar opcodes: gfx12, gfx11, mnemonic, operands, flags, facts. See rows.py and encodings/scalar.py."""

ROWS = {
    "SOP1": """
00 00 s_mov_b32 d1,s32
01 01 s_mov_b64 d2,s64
02 02 s_cmov_b32 d1,s32 <scc <dst
03 03 s_cmov_b64 d2,s64 <scc <dst
04 04 s_brev_b32 d1,s32
05 05 s_brev_b64 d2,s64
08 08 s_ctz_i32_b32 d1,s32
09 09 s_ctz_i32_b64 d1,s64
0a 0a s_clz_i32_u32 d1,s32
0b 0b s_clz_i32_u64 d1,s64
0c 0c s_cls_i32 d1,s32
0d 0d s_cls_i32_i64 d1,s64
0e 0e s_sext_i32_i8 d1,s32
0f 0f s_sext_i32_i16 d1,s32
10 10 s_bitset0_b32 d1,s32 <dst
11 11 s_bitset0_b64 d2,s32 <dst
12 12 s_bitset1_b32 d1,s32 <dst
13 13 s_bitset1_b64 d2,s32 <dst
14 14 s_bitreplicate_b64_b32 d2,s32
15 15 s_abs_i32 d1,s32 >scc
16 16 s_bcnt0_i32_b32 d1,s32 >scc
17 17 s_bcnt0_i32_b64 d1,s64 >scc
18 18 s_bcnt1_i32_b32 d1,s32 >scc
19 19 s_bcnt1_i32_b64 d1,s64 >scc
1a 1a s_quadmask_b32 d1,s32 >scc
1b 1b s_quadmask_b64 d2,s64 >scc
1c 1c s_wqm_b32 d1,s32 >scc
1d 1d s_wqm_b64 d2,s64 >scc
1e 1e s_not_b32 d1,s32 >scc
1f 1f s_not_b64 d2,s64 >scc
20 20 s_and_saveexec_b32 d1,s32 <exec >exec >scc
21 21 s_and_saveexec_b64 d2,s64 <exec >exec >scc
22 22 s_or_saveexec_b32 d1,s32 <exec >exec >scc
23 23 s_or_saveexec_b64 d2,s64 <exec >exec >scc
24 24 s_xor_saveexec_b32 d1,s32 <exec >exec >scc
25 25 s_xor_saveexec_b64 d2,s64 <exec >exec >scc
26 26 s_nand_saveexec_b32 d1,s32 <exec >exec >scc
27 27 s_nand_saveexec_b64 d2,s64 <exec >exec >scc
28 28 s_nor_saveexec_b32 d1,s32 <exec >exec >scc
29 29 s_nor_saveexec_b64 d2,s64 <exec >exec >scc
2a 2a s_xnor_saveexec_b32 d1,s32 <exec >exec >scc
2b 2b s_xnor_saveexec_b64 d2,s64 <exec >exec >scc
2c 2c s_and_not0_saveexec_b32 d1,s32 <exec >exec >scc
2d 2d s_and_not0_saveexec_b64 d2,s64 <exec >exec >scc
2e 2e s_or_not0_saveexec_b32 d1,s32 <exec >exec >scc
2f 2f s_or_not0_saveexec_b64 d2,s64 <exec >exec >scc
30 30 s_and_not1_saveexec_b32 d1,s32 <exec >exec >scc
31 31 s_and_not1_saveexec_b64 d2,s64 <exec >exec >scc
32 32 s_or_not1_saveexec_b32 d1,s32 <exec >exec >scc
33 33 s_or_not1_saveexec_b64 d2,s64 <exec >exec >scc
34 34 s_and_not0_wrexec_b32 d1,s32 <exec >exec >scc
35 35 s_and_not0_wrexec_b64 d2,s64 <exec >exec >scc
36 36 s_and_not1_wrexec_b32 d1,s32 <exec >exec >scc
37 37 s_and_not1_wrexec_b64 d2,s64 <exec >exec >scc
40 40 s_movrels_b32 d1,S1 <m0
41 41 s_movrels_b64 d2,S2 <m0
42 42 s_movreld_b32 d1,s32 <m0
43 43 s_movreld_b64 d2,s64 <m0
44 44 s_movrelsd_2_b32 d1,s32 <m0
47 47 s_getpc_b64 d2
48 48 s_setpc_b64 no,S2 %branch @jump
49 49 s_swappc_b64 d2,s64 %branch @jump_call
4a 4a s_rfe_b64 no,S2 @return
4c 4c s_sendmsg_rtn_b32 d1,msg #kmcnt
4d 4d s_sendmsg_rtn_b64 d2,msg #kmcnt
4e  - s_barrier_signal sb
4f  - s_barrier_signal_isfirst sb >scc #kmcnt
50  - s_get_barrier_state d1,sb #kmcnt
51  - s_barrier_init sb
52  - s_barrier_join sb
53  - s_alloc_vgpr no,s32 >scc
58  - s_sleep_var no,s32 %other
60 60+ s_ceil_f32 d1,s32
61 61+ s_floor_f32 d1,s32
62 62+ s_trunc_f32 d1,s32
63 63+ s_rndne_f32 d1,s32
64 64+ s_cvt_f32_i32 d1,s32
65 65+ s_cvt_f32_u32 d1,s32
66 66+ s_cvt_i32_f32 d1,s32
67 67+ s_cvt_u32_f32 d1,s32
68 68+ s_cvt_f16_f32 d1,s32
69 69+ s_cvt_f32_f16 d1,s32
6a 6a+ s_cvt_hi_f32_f16 d1,s32
6b 6b+ s_ceil_f16 d1,s32
6c 6c+ s_floor_f16 d1,s32
6d 6d+ s_trunc_f16 d1,s32
6e 6e+ s_rndne_f16 d1,s32
""",
    "SOP2": """
00  - s_add_co_u32 d1,s32,s32 >scc
 - 00 s_add_u32 d1,s32,s32 >scc
01  - s_sub_co_u32 d1,s32,s32 >scc
 - 01 s_sub_u32 d1,s32,s32 >scc
02  - s_add_co_i32 d1,s32,s32 >scc
 - 02 s_add_i32 d1,s32,s32 >scc
03  - s_sub_co_i32 d1,s32,s32 >scc
 - 03 s_sub_i32 d1,s32,s32 >scc
04  - s_add_co_ci_u32 d1,s32,s32 <scc >scc
 - 04 s_addc_u32 d1,s32,s32 <scc >scc
05  - s_sub_co_ci_u32 d1,s32,s32 <scc >scc
 - 05 s_subb_u32 d1,s32,s32 <scc >scc
06 06 s_absdiff_i32 d1,s32,s32 >scc
08 08 s_lshl_b32 d1,s32,s32 >scc
09 09 s_lshl_b64 d2,s64,s32 >scc
0a 0a s_lshr_b32 d1,s32,s32 >scc
0b 0b s_lshr_b64 d2,s64,s32 >scc
0c 0c s_ashr_i32 d1,s32,s32 >scc
0d 0d s_ashr_i64 d2,s64,s32 >scc
0e 0e s_lshl1_add_u32 d1,s32,s32 >scc
0f 0f s_lshl2_add_u32 d1,s32,s32 >scc
10 10 s_lshl3_add_u32 d1,s32,s32 >scc
11 11 s_lshl4_add_u32 d1,s32,s32 >scc
12 12 s_min_i32 d1,s32,s32 >scc
13 13 s_min_u32 d1,s32,s32 >scc
14 14 s_max_i32 d1,s32,s32 >scc
15 15 s_max_u32 d1,s32,s32 >scc
16 16 s_and_b32 d1,s32,s32 >scc
17 17 s_and_b64 d2,s64,s64 >scc
18 18 s_or_b32 d1,s32,s32 >scc
19 19 s_or_b64 d2,s64,s64 >scc
1a 1a s_xor_b32 d1,s32,s32 >scc
1b 1b s_xor_b64 d2,s64,s64 >scc
1c 1c s_nand_b32 d1,s32,s32 >scc
1d 1d s_nand_b64 d2,s64,s64 >scc
1e 1e s_nor_b32 d1,s32,s32 >scc
1f 1f s_nor_b64 d2,s64,s64 >scc
20 20 s_xnor_b32 d1,s32,s32 >scc
21 21 s_xnor_b64 d2,s64,s64 >scc
22 22 s_and_not1_b32 d1,s32,s32 >scc
23 23 s_and_not1_b64 d2,s64,s64 >scc
24 24 s_or_not1_b32 d1,s32,s32 >scc
25 25 s_or_not1_b64 d2,s64,s64 >scc
26 26 s_bfe_u32 d1,s32,s32 >scc
27 27 s_bfe_i32 d1,s32,s32 >scc
28 28 s_bfe_u64 d2,s64,s32 >scc
29 29 s_bfe_i64 d2,s64,s32 >scc
2a 2a s_bfm_b32 d1,s32,s32
2b 2b s_bfm_b64 d2,s32,s32
2c 2c s_mul_i32 d1,s32,s32
2d 2d s_mul_hi_u32 d1,s32,s32
2e 2e s_mul_hi_i32 d1,s32,s32
30 30 s_cselect_b32 d1,s32,s32 <scc
31 31 s_cselect_b64 d2,s64,s64 <scc
32 32 s_pack_ll_b32_b16 d1,s32,s32
33 33 s_pack_lh_b32_b16 d1,s32,s32
34 34 s_pack_hh_b32_b16 d1,s32,s32
35 35 s_pack_hl_b32_b16 d1,s32,s32
40 40+ s_add_f32 d1,s32,s32
41 41+ s_sub_f32 d1,s32,s32
42  - s_min_num_f32 d1,s32,s32
 - 42+ s_min_f32 d1,s32,s32
43  - s_max_num_f32 d1,s32,s32
 - 43+ s_max_f32 d1,s32,s32
44 44+ s_mul_f32 d1,s32,s32
45 45+ s_fmaak_f32 d1,s32,s32,K
46 46+ s_fmamk_f32 d1,s32,K,s32
47 47+ s_fmac_f32 d1,s32,s32 <dst
48 48+ s_cvt_pk_rtz_f16_f32 d1,s32,s32
49 49+ s_add_f16 d1,sf16,sf16
4a 4a+ s_sub_f16 d1,sf16,sf16
4b  - s_min_num_f16 d1,sf16,sf16
 - 4b+ s_min_f16 d1,sf16,sf16
4c  - s_max_num_f16 d1,sf16,sf16
 - 4c+ s_max_f16 d1,sf16,sf16
4d 4d+ s_mul_f16 d1,sf16,sf16
4e 4e+ s_fmac_f16 d1,sf16,sf16 <dst
4f  - s_minimum_f32 d1,s32,s32
50  - s_maximum_f32 d1,s32,s32
51  - s_minimum_f16 d1,sf16,sf16
52  - s_maximum_f16 d1,sf16,sf16
53  - s_add_nc_u64 d2,s64,s64
54  - s_sub_nc_u64 d2,s64,s64
55  - s_mul_u64 d2,s64,s64
""",
    "SOPC": """
00 00 s_cmp_{eq,lg,gt,ge,lt,le}_i32 s32,s32
06 06 s_cmp_{eq,lg,gt,ge,lt,le}_u32 s32,s32
0c 0c s_bitcmp0_b32 s32,s32
0d 0d s_bitcmp1_b32 s32,s32
0e 0e s_bitcmp0_b64 s64,s32
0f 0f s_bitcmp1_b64 s64,s32
10 10 s_cmp_eq_u64 s64,s64
11 11 s_cmp_lg_u64 s64,s64
41 41+ s_cmp_{lt,eq,le,gt,lg,ge,o,u,nge,nlg,ngt,nle,neq,nlt}_f32 s32,s32
51 51+ s_cmp_{lt,eq,le,gt,lg,ge,o,u,nge,nlg,ngt,nle,neq,nlt}_f16 si16,si16
""",
    "SOPK": """
00 00 s_movk_i32 d1,hex
01 01 s_version version %other
02 02 s_cmovk_i32 d1,hex <scc <dst
 - 03 s_cmpk_{eq,lg,gt,ge,lt,le}_i32 S1,hex >scc
 - 09 s_cmpk_{eq,lg,gt,ge,lt,le}_u32 S1,hex >scc
0f  - s_addk_co_i32 d1,hex <dst >scc
 - 0f s_addk_i32 d1,hex <dst >scc
10 10 s_mulk_i32 d1,hex <dst
11 11 s_getreg_b32 d1,hwreg
12 12 s_setreg_b32 hwreg,d1
13 13 s_setreg_imm32_b32 hwreg,k
14 14 s_call_b64 d2,dec @call
 - 16 s_subvector_loop_begin d1,dec <exec >exec
 - 17 s_subvector_loop_end d1,dec <dst <exec >exec
 - 18 s_waitcnt_vscnt d1,hex %wait ~storecnt
 - 19 s_waitcnt_vmcnt d1,hex %wait ~vector
 - 1a s_waitcnt_expcnt d1,hex %wait ~expcnt
 - 1b s_waitcnt_lgkmcnt d1,hex %wait ~lgkm
""",
    "SOPP": """
00 00 s_nop imm %other
01 01 s_setkill imm
02 02 s_sethalt imm
03 03 s_sleep imm %other
 - 04 s_set_inst_prefetch_distance hex
05 05 s_clause hex %other
07 07 s_delay_alu delay %other
08  - s_wait_alu depctr %wait
 - 08 s_waitcnt_depctr depctr %wait
09 09 s_waitcnt waitcnt %wait ~legacy
0a 0a s_wait_idle - zero %wait ~all
0b 0b s_wait_event hex %wait
10 10 s_trap imm @halt
11 11 s_round_mode hex
12 12 s_denorm_mode imm
 - 13+ s_singleuse_vdst hex %other
14  - s_barrier_wait imm @barrier
15  - s_barrier_leave - zero >scc
1f 1f s_code_end - zero %other @padding
20 20 s_branch dec %branch @branch
21 21 s_cbranch_scc0 dec <scc %branch @conditional
22 22 s_cbranch_scc1 dec <scc %branch @conditional
23 23 s_cbranch_vccz dec <vcc %branch @conditional
24 24 s_cbranch_vccnz dec <vcc %branch @conditional
25 25 s_cbranch_execz dec <exec %branch @conditional
26 26 s_cbranch_execnz dec <exec %branch @conditional
 - 27 s_cbranch_cdbgsys dec %branch @conditional
 - 28 s_cbranch_cdbguser dec %branch @conditional
 - 29 s_cbranch_cdbgsys_or_user dec %branch @conditional
 - 2a s_cbranch_cdbgsys_and_user dec %branch @conditional
30 30 s_endpgm dec optional %other @end
31 31 s_endpgm_saved - zero %other @end
 - 32 s_endpgm_ordered_ps_done - zero %other @end
34 34 s_wakeup - zero
35 35 s_setprio imm %other
36 36 s_sendmsg msg <m0
37 37 s_sendmsghalt msg <m0 @halt
38 38 s_incperflevel imm
39 39 s_decperflevel imm
3a 3a s_ttracedata - zero
3b 3b s_ttracedata_imm hex
3c 3c s_icache_inv - zero
 - 3d s_barrier - zero @barrier
40  - s_wait_loadcnt hex %wait ~loadcnt
41  - s_wait_storecnt hex %wait ~storecnt
42  - s_wait_samplecnt hex %wait ~samplecnt
43  - s_wait_bvhcnt hex %wait ~bvhcnt
44  - s_wait_expcnt hex %wait ~expcnt
46  - s_wait_dscnt hex %wait ~dscnt
47  - s_wait_kmcnt hex %wait ~kmcnt
48  - s_wait_loadcnt_dscnt hex %wait ~loadcnt+dscnt
49  - s_wait_storecnt_dscnt hex %wait ~storecnt+dscnt
""",
}
