#include "gpu.h"
/* A small array indexed by data: registers that the compiler addresses relatively, or scratch. */
KERNEL register_index(u32 *out, const u32 *in, const u32 *picks, u32 n) {
  typedef u32 Eight __attribute__((ext_vector_type(8)));
  u32 i = thread();
  Eight v = *(const Eight *)(in + i * 8);
  u32 sum = 0;
  for (u32 k = 0; k < n; k++) {
    u32 at = picks[k] & 7;
    sum = sum * 3 + v[at];
    v[(at + i) & 7] += k;
  }
  out[i] = sum + v[in[i] & 7];
}
