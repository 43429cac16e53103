#include "gpu.h"
LDS i32 keys[256];
KERNEL bitonic_sort(i32 *data) {
  u32 t = thread();
  i32 *mine = data + group() * 256;
  keys[t] = mine[t];
  keys[t + 128] = mine[t + 128];
  for (u32 size = 2; size <= 256; size *= 2)
    for (u32 step = size / 2; step; step /= 2) {
      barrier();
      u32 low = 2 * t - (t & (step - 1)), high = low + step;
      i32 a = keys[low], b = keys[high];
      if ((a > b) == ((low & size) == 0)) {
        keys[low] = b;
        keys[high] = a;
      }
    }
  barrier();
  mine[t] = keys[t];
  mine[t + 128] = keys[t + 128];
}
