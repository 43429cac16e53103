// https://github.com/ROCm/triton/pull/967 (ROCM-30341): as store_barrier_load.s, on gfx1151, without s_waitcnt_vscnt
.amdgcn_target "amdgcn-amd-amdhsa--gfx1151"
.text
.globl store_barrier_load
.p2align 8
.type store_barrier_load,@function
store_barrier_load:
  s_load_b128 s[0:3], s[0:1], 0x0
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v1, 2, v0
  v_sub_nc_u32 v2, 0xfc, v1
  s_waitcnt lgkmcnt(0)
  global_store_b32 v1, v0, s[2:3]
  s_barrier // BUG
  buffer_gl0_inv
  global_load_b32 v3, v2, s[2:3]
  s_waitcnt vmcnt(0)
  global_store_b32 v1, v3, s[0:1]
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel store_barrier_load
  .amdhsa_group_segment_fixed_size 0
  .amdhsa_kernarg_size 16
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 8
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: store_barrier_load
    .symbol: store_barrier_load.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 32
    .sgpr_count: 8
    .vgpr_count: 8
    .max_flat_workgroup_size: 64
    .args:
      - {.name: out, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: x, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
...
.end_amdgpu_metadata
