"""VOPD opcodes: gfx12, gfx11, mnemonic, operands, facts. Opcodes from 16 upwards are valid only in the second
half."""

ROWS = {
    "VOPD": """
00 00 v_dual_fmac_f32 v1,b32,v1 <dst
01 01 v_dual_fmaak_f32 v1,b32,v1,K
02 02 v_dual_fmamk_f32 v1,b32,K,v1
03 03 v_dual_mul_f32 v1,b32,v1
04 04 v_dual_add_f32 v1,b32,v1
05 05 v_dual_sub_f32 v1,b32,v1
06 06 v_dual_subrev_f32 v1,b32,v1
07 07 v_dual_mul_dx9_zero_f32 v1,b32,v1
08 08 v_dual_mov_b32 v1,b32
09 09 v_dual_cndmask_b32 v1,b32,v1 <vcc
0a  - v_dual_max_num_f32 v1,b32,v1
 - 0a v_dual_max_f32 v1,b32,v1
0b  - v_dual_min_num_f32 v1,b32,v1
 - 0b v_dual_min_f32 v1,b32,v1
0c 0c v_dual_dot2acc_f32_f16 v1,h2,v1 <dst
0d 0d v_dual_dot2acc_f32_bf16 v1,y2,v1 <dst
10 10 v_dual_add_nc_u32 v1,b32,v1
11 11 v_dual_lshlrev_b32 v1,b32,v1
12 12 v_dual_and_b32 v1,b32,v1
""",
}
