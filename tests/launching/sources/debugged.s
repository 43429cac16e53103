// Two waves in a workgroup: a loop, divergent lanes, and values that cross the waves through the LDS.
.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
.text
.globl walk
.p2align 8
.type walk,@function
walk:
  s_load_b128 s[0:3], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_lshl_b32 s4, ttmp9, 8
  s_mov_b32 s8, 0
  v_add_nc_u32 v2, s4, v1
  v_mov_b32 v4, 0
  s_wait_kmcnt 0
  global_load_b32 v3, v2, s[2:3]
loop:
  v_add_nc_u32 v4, 3, v4
  s_add_co_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 4
  s_cbranch_scc1 loop
  s_wait_loadcnt 0
  v_cmp_gt_u32 vcc_lo, 8, v0
  s_wait_alu depctr_va_vcc(0)
  s_and_saveexec_b32 s6, vcc_lo
  v_add_nc_u32 v3, 100, v3
  s_mov_b32 exec_lo, s6
  ds_store_b32 v1, v3
  s_wait_dscnt 0
  s_barrier_signal -1
  s_barrier_wait -1
  v_xor_b32 v5, 0x80, v1
  ds_load_b32 v5, v5
  s_wait_dscnt 0
  v_add_nc_u32 v5, v5, v4
  global_store_b32 v2, v5, s[0:1]
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel walk
  .amdhsa_kernarg_size 16
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 6
  .amdhsa_next_free_sgpr 9
  .amdhsa_wavefront_size32 1
  .amdhsa_group_segment_fixed_size 256
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: walk
    .symbol: walk.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 256
    .private_segment_fixed_size: 0
    .wavefront_size: 32
    .sgpr_count: 9
    .vgpr_count: 6
    .max_flat_workgroup_size: 64
    .args:
      - {.name: out, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: in, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
...
.end_amdgpu_metadata
