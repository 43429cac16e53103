#include "gpu.h"
/* Loads and stores through a buffer resource: what lies outside reads 0 and is not stored. */
KERNEL buffer_resources(u32 *out, u32 *in, u32 n, u32 room) {
  u32 i = group() * 32 + thread();
  __amdgpu_buffer_rsrc_t from = __builtin_amdgcn_make_buffer_rsrc(in, 0, n * 4, 0x31004000 | 3 << 28);
  __amdgpu_buffer_rsrc_t to = __builtin_amdgcn_make_buffer_rsrc(out, 0, room * 4, 0x31004000 | 3 << 28);
  u32 a = __builtin_amdgcn_raw_buffer_load_b32(from, i * 4, 0, 0);
  u32 b = __builtin_amdgcn_raw_buffer_load_b32(from, i * 4, 64, 0);
  __builtin_amdgcn_raw_buffer_store_b32(a + 3 * b, to, i * 4, 0, 0);
}
