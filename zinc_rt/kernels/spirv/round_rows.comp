#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "halves.glsl"

// Rows of activations as halves, f16 or bf16, for matmul_wmma: scaled by a power of two, so that the largest element's exponent is
// 14, then rounded (docs/wmma-f16.md).
//
// grid: x rows of a token, y tokens
// buffers: x f32 [T][rows][k]; to [T][rows]: halves [m], +0 from k on, then its factor f32 and 12 unused bytes
// constants: k; m, a multiple of 256; rows; 0
KERNARG(F32 x; U32RW to; uint k; uint m; uint rows; uint zero;)

shared uint largest_of[LANES];

void main() {
    uint row = gl_WorkGroupID.y * args.rows + gl_WorkGroupID.x;
    F32 x = F32(uint64_t(args.x) + uint64_t(row) * (4u * args.k));
    U32RW to = U32RW(uint64_t(args.to) + uint64_t(row) * (2u * args.m + 16u));
    uint largest = 0u;
    for (uint i = lane; i < args.k; i += LANES) largest = max(largest, bits_of(x.v[i]) & ~SIGN_BIT);
    largest_of[lane] = largest;
    barrier();
    for (uint l = 0u; l < LANES; l++) largest = max(largest, largest_of[l]);
    uint field = clamp(largest >> 23, 27u, 254u);
    float scale = f32((268u - field) << 23);
    for (uint word = lane; word < args.m / 2u; word += LANES) {
        uint pair = 0u;
        [[unroll]] for (uint e = 0u; e < 2u; e++) {
            uint i = 2u * word + e;
            if (i < args.k) pair |= to_half(x.v[i] * scale) << (16u * e);
        }
        to.v[word] = pair;
    }
    if (lane == 0u) to.v[args.m / 2u] = (field - 14u) << 23;
}
