#include "gpu.h"
KERNEL gather_scatter(float *out, const float *in, const u32 *from, const u32 *to, u32 n) {
  for (u32 i = group() * 64 + thread(); i < n; i += 256) out[to[i]] = in[from[i]] * 2 + in[i];
}
