#include "gpu.h"
/* Solutions whose first queen is in this thread's column; the board is an array in scratch. */
KERNEL queens(u32 *out, u32 n) {
  u32 first = thread(), count = 0;
  i32 column[12], row = 1;
  if (first >= n) { out[first] = 0; return; }
  column[0] = first;
  column[1] = -1;
  while (row > 0) {
    if (++column[row] >= (i32)n) { row--; continue; }
    u32 safe = 1;
    for (i32 k = 0; k < row; k++) {
      i32 apart = column[row] - column[k];
      safe &= apart != 0 && apart != row - k && apart != k - row;
    }
    if (!safe) continue;
    if (row == (i32)n - 1) count++;
    else column[++row] = -1;
  }
  out[first] = count;
}
