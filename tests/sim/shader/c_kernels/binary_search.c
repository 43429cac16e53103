#include "gpu.h"
KERNEL binary_search(u32 *out, const u64 *sorted, const u64 *wanted, u32 n, u32 count) {
  u32 i = group() * 64 + thread();
  if (i >= count) return;
  u32 low = 0, high = n;
  while (low < high) {
    u32 middle = (low + high) / 2;
    if (sorted[middle] < wanted[i]) low = middle + 1;
    else high = middle;
  }
  out[i] = low;
}
