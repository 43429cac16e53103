#include "gpu.h"
KERNEL xtea(u32 *data, const u32 *key, u32 rounds) {
  u32 i = group() * 64 + thread(), a = data[2 * i], b = data[2 * i + 1], sum = 0;
  for (u32 k = 0; k < rounds; k++) {
    a += ((b << 4 ^ b >> 5) + b) ^ (sum + key[sum & 3]);
    sum += 0x9e3779b9;
    b += ((a << 4 ^ a >> 5) + a) ^ (sum + key[sum >> 11 & 3]);
  }
  data[2 * i] = a, data[2 * i + 1] = b;
}
