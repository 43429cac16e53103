#include "gpu.h"
static const char digits[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
KERNEL base64(char *out, const u8 *in, u32 n) {
  u32 i = group() * 32 + thread();
  if (3 * i >= n) return;
  u32 bits = in[3 * i] << 16 | (3 * i + 1 < n ? in[3 * i + 1] << 8 : 0) | (3 * i + 2 < n ? in[3 * i + 2] : 0);
  out[4 * i] = digits[bits >> 18];
  out[4 * i + 1] = digits[bits >> 12 & 63];
  out[4 * i + 2] = 3 * i + 1 < n ? digits[bits >> 6 & 63] : '=';
  out[4 * i + 3] = 3 * i + 2 < n ? digits[bits & 63] : '=';
}
