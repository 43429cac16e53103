#include "gpu.h"
/* One padded block a thread. The round constants are a table in .rodata. */
static const u32 K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};
static u32 turn(u32 x, int n) { return x >> n | x << (32 - n); }
KERNEL sha256(u32 *out, const u32 *blocks) {
  u32 i = group() * 32 + thread(), w[16];
  for (int k = 0; k < 16; k++) w[k] = __builtin_bswap32(blocks[i * 16 + k]);
  u32 h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, s[8];
  for (int k = 0; k < 8; k++) s[k] = h[k];
#pragma unroll 1
  for (int r = 0; r < 64; r++) {
    u32 now = w[0];
    u32 s0 = turn(w[1], 7) ^ turn(w[1], 18) ^ w[1] >> 3, s1 = turn(w[14], 17) ^ turn(w[14], 19) ^ w[14] >> 10;
    u32 next = w[0] + s0 + w[9] + s1;
    for (int k = 0; k < 15; k++) w[k] = w[k + 1];
    w[15] = next;
    u32 e = s[4], a = s[0];
    u32 t1 = s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + K[r] + now;
    u32 t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    for (int k = 7; k > 0; k--) s[k] = s[k - 1];
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int k = 0; k < 8; k++) out[i * 8 + k] = __builtin_bswap32(h[k] + s[k]);
}
