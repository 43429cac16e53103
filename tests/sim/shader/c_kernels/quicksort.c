#include "gpu.h"
/* Each thread sorts 24 numbers in place with a stack of its own. */
KERNEL quicksort(i32 *data) {
  i32 *a = data + (group() * 32 + thread()) * 24;
  u8 stack[32];
  u32 top = 0;
  stack[top++] = 0, stack[top++] = 23;
  while (top) {
    i32 high = stack[--top], low = stack[--top], i = low - 1, pivot = a[high];
    for (i32 k = low; k < high; k++)
      if (a[k] <= pivot) {
        i32 swap = a[++i];
        a[i] = a[k], a[k] = swap;
      }
    i++;
    a[high] = a[i], a[i] = pivot;
    if (i - 1 > low) stack[top++] = low, stack[top++] = i - 1;
    if (i + 1 < high) stack[top++] = i + 1, stack[top++] = high;
  }
}
