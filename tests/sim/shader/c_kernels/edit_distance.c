#include "gpu.h"
/* Levenshtein distance, one row of the table in scratch. */
KERNEL edit_distance(u32 *out, const u8 *words, const u8 *other) {
  u32 i = group() * 32 + thread();
  const u8 *word = words + i * 16;
  u8 row[17];
  for (u32 k = 0; k <= 16; k++) row[k] = k;
  for (u32 r = 0; r < 16; r++) {
    u32 corner = row[0];
    row[0] = r + 1;
    for (u32 c = 0; c < 16; c++) {
      u32 best = corner + (word[r] != other[c]);
      corner = row[c + 1];
      if (corner + 1 < best) best = corner + 1;
      if (row[c] + 1u < best) best = row[c] + 1;
      row[c + 1] = best;
    }
  }
  out[i] = row[16];
}
