#include "gpu.h"
typedef struct { u8 kind; u16 count; u32 key; u64 mass; u32 tail[3]; } Record;
KERNEL structs(Record *out, const Record *in, const u32 *order, u32 n) {
  u32 i = group() * 32 + thread();
  if (i >= n) return;
  Record r = in[order[i]];
  r.count += r.kind;
  r.mass *= 3;
  u32 swap = r.tail[0];
  r.tail[0] = r.tail[2];
  r.tail[2] = swap;
  __builtin_memcpy(&out[i], &r, sizeof r);
}
