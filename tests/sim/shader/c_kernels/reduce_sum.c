#include "gpu.h"
/* Tree reduction in LDS, one sum a group of 128. */
LDS u32 partial[128];
KERNEL reduce_sum(u32 *out, const u32 *in) {
  u32 t = thread();
  partial[t] = in[group() * 128 + t];
  for (u32 half = 64; half; half >>= 1) {
    barrier();
    if (t < half) partial[t] += partial[t + half];
  }
  barrier();
  if (t == 0) out[group()] = partial[0];
}
