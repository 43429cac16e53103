// out[i] = 2 * in[i], for 32 elements
.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
.text
.globl double
.p2align 8
.type double,@function
double:
  s_load_b128 s[0:3], s[0:1], 0x0
  v_lshlrev_b32 v0, 2, v0
  s_wait_kmcnt 0
  global_load_b32 v1, v0, s[2:3]
  s_wait_loadcnt 0
  v_add_nc_u32 v1, v1, v1
  global_store_b32 v0, v1, s[0:1]
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel double
  .amdhsa_kernarg_size 16
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 2
  .amdhsa_next_free_sgpr 4
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: double
    .symbol: double.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 32
    .sgpr_count: 4
    .vgpr_count: 2
    .max_flat_workgroup_size: 32
    .args:
      - {.name: out, .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}
      - {.name: in, .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}
...
.end_amdgpu_metadata
