#include "gpu.h"
kernel SIZED(64) void vectors4(global float4 *out, global const float4 *in, global const int4 *pick, float4 by) {
  uint i = GROUP * 64 + ID;
  float4 v = in[i], w = v.wzyx * by + v.xxyy;
  int4 p = pick[i];
  w = p > (int4)(0) ? w : -v;
  w.even = w.even + w.odd;
  out[i] = w;
}
