#include "gpu.h"
/* Calls through pointers to functions, a different one in each lane. */
static NOINLINE u32 f_add(u32 x) { return x + 17; }
static NOINLINE u32 f_mul(u32 x) { return x * 2654435761u; }
static NOINLINE u32 f_not(u32 x) { return ~x >> 3; }
static NOINLINE u32 f_mix(u32 x) { return f_mul(x) ^ f_add(x); }
typedef u32 (*Function)(u32);
KERNEL function_table(u32 *out, const u32 *in, const u8 *which) {
  u32 i = group() * 32 + thread();
  u32 w = which[i];
  Function f = w & 2 ? (w & 1 ? f_mix : f_not) : (w & 1 ? f_mul : f_add);
  out[i] = f(in[i]);
}
