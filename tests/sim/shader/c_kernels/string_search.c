#include "gpu.h"
/* Where the pattern occurs: a bit a position, and how often in all. */
KERNEL string_search(u8 *found, u32 *count, const char *text, const char *pattern, u32 n, u32 m) {
  u32 i = group() * 64 + thread();
  if (i + m > n) return;
  u32 k = 0;
  while (k < m && (pattern[k] == '?' || pattern[k] == text[i + k])) k++;
  found[i] = k == m;
  if (k == m) __scoped_atomic_fetch_add(count, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}
