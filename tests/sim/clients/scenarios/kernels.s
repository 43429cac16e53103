// The waves of these scenarios, for gfx12. kernels.h is made of this file by make_kernels.py.
// s[0:1]: the kernarg block. ttmp9: workgroup id x; ttmp7: y below, z above. v0: work-item id, 10 bits a dimension.

// to[i] = (from ? from[i] : i) + value. i: work-item of the grid.
// kernarg: u64 from, to; u32 value, group size
.macro work_body
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b64 s[8:9], s[0:1], 0x10
  v_and_b32 v1, 0x3ff, v0
  s_wait_kmcnt 0x0
  s_mul_i32 s10, ttmp9, s9
  v_add_nc_u32 v2, s10, v1
  v_lshlrev_b32 v3, 2, v2
  s_cmp_eq_u64 s[4:5], 0
  s_cbranch_scc1 1f
  global_load_b32 v2, v3, s[4:5] scope:SCOPE_SYS
  s_wait_loadcnt 0x0
1:
  v_add_nc_u32 v2, s8, v2
  global_store_b32 v3, v2, s[6:7] scope:SCOPE_SYS
  s_endpgm
.endm

// count[x + size_x (y + size_y z)] += 1, of each work-item of the grid.
// kernarg: u64 count; u32 size_x, size_y, group x, y, z
.macro geometry_body
  s_load_b64 s[4:5], s[0:1], 0x0
  s_load_b128 s[8:11], s[0:1], 0x8
  s_load_b32 s12, s[0:1], 0x18
  v_and_b32 v1, 0x3ff, v0
  v_bfe_u32 v2, v0, 10, 10
  v_bfe_u32 v3, v0, 20, 10
  s_and_b32 s13, ttmp7, 0xffff
  s_lshr_b32 s14, ttmp7, 16
  s_wait_kmcnt 0x0
  s_mul_i32 s10, ttmp9, s10
  s_mul_i32 s11, s13, s11
  s_mul_i32 s12, s14, s12
  v_add_nc_u32 v1, s10, v1
  v_add_nc_u32 v2, s11, v2
  v_add_nc_u32 v3, s12, v3
  v_mad_u32_u24 v2, v3, s9, v2
  v_mad_u32_u24 v1, v2, s8, v1
  v_lshlrev_b32 v1, 2, v1
  v_mov_b32 v2, 1
  global_atomic_add_u32 v1, v2, s[4:5] scope:SCOPE_DEV
  s_endpgm
.endm

// Groups of 256: `steps` times each work-item hands its word to the one 17 below it, through LDS at `offset`.
// kernarg: u64 to; u32 seed, offset, steps
.macro lds_body
  s_load_b64 s[4:5], s[0:1], 0x0
  s_load_b64 s[6:7], s[0:1], 0x8
  s_load_b32 s8, s[0:1], 0x10
  v_and_b32 v1, 0x3ff, v0
  s_lshl_b32 s12, ttmp9, 8
  v_add_nc_u32 v2, 17, v1
  v_and_b32 v2, 0xff, v2
  v_or_b32 v5, s12, v1
  s_wait_kmcnt 0x0
  v_xor_b32 v3, s6, v5
  v_lshl_add_u32 v4, v1, 2, s7
  v_lshl_add_u32 v2, v2, 2, s7
1:
  ds_store_b32 v4, v3
  s_wait_dscnt 0x0
  s_barrier_signal -1
  s_barrier_wait 0xffff
  ds_load_b32 v3, v2
  s_wait_dscnt 0x0
  s_barrier_signal -1
  s_barrier_wait 0xffff
  v_add_nc_u32 v3, 1, v3
  s_sub_co_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 1b
  v_lshlrev_b32 v5, 2, v5
  global_store_b32 v5, v3, s[4:5] scope:SCOPE_SYS
  s_endpgm
.endm

// Each work-item fills 16 words of scratch with seed + i + word and sums them up again, in another order.
// kernarg: u64 to; u32 seed, group size
.macro scratch_body
  s_load_b128 s[4:7], s[0:1], 0x0
  v_and_b32 v1, 0x3ff, v0
  s_wait_kmcnt 0x0
  s_mul_i32 s8, ttmp9, s7
  v_add_nc_u32 v1, s8, v1
  v_add_nc_u32 v2, s6, v1
  s_mov_b32 s12, 0
1:
  v_mov_b32 v4, s12
  v_lshrrev_b32 v5, 2, v4
  v_add_nc_u32 v5, v2, v5
  scratch_store_b32 v4, v5, off
  s_add_co_u32 s12, s12, 4
  s_wait_alu depctr_sa_sdst(0)
  s_cmp_lt_u32 s12, 64
  s_cbranch_scc1 1b
  s_wait_storecnt 0x0
  v_mov_b32 v3, 0
2:
  s_sub_co_u32 s12, s12, 4
  s_wait_alu depctr_sa_sdst(0)
  v_mov_b32 v4, s12
  scratch_load_b32 v5, v4, off
  s_wait_loadcnt 0x0
  v_mad_u32_u24 v4, v4, v4, v5
  v_add_nc_u32 v3, v3, v4
  s_cmp_lg_u32 s12, 0
  s_cbranch_scc1 2b
  v_lshlrev_b32 v1, 2, v1
  global_store_b32 v1, v3, s[4:5] scope:SCOPE_SYS
  s_endpgm
.endm

// One lane: counts in ticks until stop holds token, then to = 3 ticks.
// kernarg: u64 ticks, stop, to; u32 token
.macro gate_body
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b64 s[8:9], s[0:1], 0x10
  s_load_b32 s10, s[0:1], 0x18
  v_mov_b32 v1, 0
  v_mov_b32 v2, 0
  s_wait_kmcnt 0x0
1:
  v_add_nc_u32 v2, 1, v2
  global_store_b32 v1, v2, s[4:5] scope:SCOPE_SYS
  s_sleep 2
  global_load_b32 v3, v1, s[6:7] scope:SCOPE_SYS
  s_wait_loadcnt 0x0
  v_readfirstlane_b32 s11, v3
  s_cmp_lg_u32 s11, s10
  s_cbranch_scc1 1b
  v_mul_u32_u24 v2, 3, v2
  global_store_b32 v1, v2, s[8:9] scope:SCOPE_SYS
  s_endpgm
.endm

// 32 lanes talk to the host `rounds` times: each puts its state into asked[lane], lane 0 the round into asked[32];
// once answered[32] is the round, the state is answered[lane] * 5 + round. In the end to[lane] = state.
// kernarg: u64 asked, answered, to; u32 seed, rounds
.macro exchange_body
  s_load_b128 s[4:7], s[0:1], 0x0
  s_load_b128 s[8:11], s[0:1], 0x10
  v_lshlrev_b32 v1, 2, v0
  s_mov_b32 s12, 0
  v_mov_b32 v4, 0
  s_wait_kmcnt 0x0
  v_xor_b32 v2, s10, v0
1:
  s_add_co_u32 s12, s12, 1
  s_wait_alu depctr_sa_sdst(0)
  global_store_b32 v1, v2, s[4:5] scope:SCOPE_SYS
  global_wb scope:SCOPE_SYS
  s_wait_storecnt 0x0
  v_mov_b32 v3, s12
  global_store_b32 v4, v3, s[4:5] offset:128 scope:SCOPE_SYS
2:
  s_sleep 2
  global_load_b32 v3, v4, s[6:7] offset:128 scope:SCOPE_SYS
  s_wait_loadcnt 0x0
  v_readfirstlane_b32 s13, v3
  s_cmp_lg_u32 s13, s12
  s_cbranch_scc1 2b
  global_inv scope:SCOPE_SYS
  s_wait_loadcnt 0x0
  global_load_b32 v2, v1, s[6:7] scope:SCOPE_SYS
  s_wait_loadcnt 0x0
  v_mul_lo_u32 v2, v2, 5
  v_add_nc_u32 v2, s12, v2
  s_cmp_lt_u32 s12, s11
  s_cbranch_scc1 1b
  global_store_b32 v1, v2, s[8:9] scope:SCOPE_SYS
  s_endpgm
.endm

// to[group] = HW_ID1 of its wave without wave and SIMD: the workgroup processor it runs on.
// kernarg: u64 to
.macro placement_body
  s_load_b64 s[4:5], s[0:1], 0x0
  s_getreg_b32 s6, hwreg(HW_REG_HW_ID1)
  s_and_b32 s6, s6, 0x1d3c00
  v_mov_b32 v2, s6
  s_lshl_b32 s8, ttmp9, 2
  v_mov_b32 v1, s8
  s_wait_kmcnt 0x0
  global_store_b32 v1, v2, s[4:5] scope:SCOPE_SYS
  s_endpgm
.endm

.macro kernel name, body, vgprs, wave32, private=0
  .text
  .p2align 8
  .globl \name
  .type \name,@function
\name:
  \body
  .p2align 8, 0
  .rodata
  .p2align 6
  .amdhsa_kernel \name
    .amdhsa_next_free_vgpr \vgprs
    .amdhsa_next_free_sgpr 16
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_system_sgpr_workgroup_id_x 1
    .amdhsa_system_sgpr_workgroup_id_y 1
    .amdhsa_system_sgpr_workgroup_id_z 1
    .amdhsa_system_vgpr_workitem_id 2
    .amdhsa_wavefront_size32 \wave32
    .amdhsa_private_segment_fixed_size \private
    .amdhsa_enable_private_segment -(\private > 0)
  .end_amdhsa_kernel
.endm
.macro .rodata
  .section .rodata,"a"
.endm

kernel work, work_body, 8, 1
kernel work_wave64, work_body, 8, 0
kernel geometry, geometry_body, 8, 1
kernel geometry_wave64, geometry_body, 8, 0
kernel lds, lds_body, 8, 1
kernel lds_wave64, lds_body, 8, 0
kernel scratch, scratch_body, 8, 1, 64
kernel gate, gate_body, 8, 1
kernel exchange, exchange_body, 8, 1
kernel placement, placement_body, 8, 1
