#include "gpu.h"
/* y = A x: a group's lanes share a row; partial sums meet in LDS, in one order. */
kernel SIZED(64) void row_sums(global float *y, global const float *a, global const float *x, uint columns) {
  local float parts[64];
  float sum = 0;
  for (uint k = ID; k < columns; k += 64) sum += a[GROUP * columns + k] * x[k];
  parts[ID] = sum;
  meet();
  for (uint step = 32; step; step >>= 1) {
    if (ID < step) parts[ID] += parts[ID + step];
    meet();
  }
  if (ID == 0) y[GROUP] = parts[0];
}
