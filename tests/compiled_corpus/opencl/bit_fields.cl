#include "gpu.h"
#pragma OPENCL EXTENSION __cl_clang_bitfields : enable
struct Packed {
  uint kind : 3;
  int delta : 11;
  uint rest : 17, flag : 1;
  ushort id;
  uchar low : 4, high : 4;
};
kernel SIZED(64) void bit_fields(global int *out, global struct Packed *items, uint n) {
  uint i = GROUP * 64 + ID;
  if (i >= n) return;
  struct Packed it = items[i];
  out[i] = it.flag ? it.delta * (int)it.kind - it.low : (int)it.rest + it.high * it.id;
  it.delta -= 5;
  it.kind ^= it.low;
  items[i] = it;
}
