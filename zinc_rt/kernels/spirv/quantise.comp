#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#include "activations.glsl"
#include "rounding.glsl"

// Activations of canonical-1-q8: each block of x in 8 bits. BLOCK is 32, or 256 for the K types.
//
// grid: x tokens (or logit rows), y groups of 1,024 elements, z inputs of a token
// buffers: x f32 [rows][k], or with `row` i32 [grid x] that row of it for each token; records (activations.glsl)
//          [grid x][inputs]
// constants: k, inputs
KERNARG(F32 x; U32RW records; U32 row; uint k; uint inputs;)

const uint PARTS = BLOCK / 32u;          // of a block: a lane has 32 elements

#if BLOCK > 32
shared uint largest_of[LANES];
#endif

void main() {
    uint result = gl_WorkGroupID.x * args.inputs + gl_WorkGroupID.z;
    uint input_row = present(args.row) ? args.row.v[gl_WorkGroupID.x] : result;
    uint64_t x = uint64_t(args.x) + uint64_t(input_row) * (4u * args.k);
    uint part = gl_WorkGroupID.y * LANES + lane;  // this lane's 32 elements
    bool within = part * 32u < args.k;

    vec4 values[8];
    uint largest = 0u;
    [[unroll]] for (uint j = 0u; j < 8u; j++) {
        values[j] = vec4(0.0);
        if (within) values[j] = F32x4(x).v[part * 8u + j];
        [[unroll]] for (uint e = 0u; e < 4u; e++) largest = max(largest, bits_of(values[j][e]) & ~SIGN_BIT);
    }
#if BLOCK > 32
    largest_of[lane] = largest;
    barrier();
    uint first = lane / PARTS * PARTS;
    for (uint l = 0u; l < PARTS; l++) largest = max(largest, largest_of[first + l]);
#endif

    bool finite = largest < INFINITY_BITS, used = finite && largest >= SMALLEST_AMAX;
    float factor = used ? fdiv_(127.0, f32(largest)) : 0.0;
    int sum = 0;
    uint words[8];
    [[unroll]] for (uint j = 0u; j < 8u; j++) {
        words[j] = 0u;
        [[unroll]] for (uint e = 0u; e < 4u; e++) {
            int q = used ? int(frint_(values[j][e] * factor)) : 0;
            sum += q;
            words[j] = bitfieldInsert(words[j], uint(q), int(8u * e), 8);
        }
    }
    float d = used ? fdiv_(f32(largest), 127.0) : 0.0;
#if BLOCK == 32
    d = half_to_float(half_bits(d));
#endif
    Activations record = activations(uint64_t(args.records), result, args.k, BLOCK);
    record.quants.v[2u * part] = uvec4(words[0], words[1], words[2], words[3]);
    record.quants.v[2u * part + 1u] = uvec4(words[4], words[5], words[6], words[7]);
    record.sums.v[part] = sum;
    if (part % PARTS == 0u) record.d.v[part / PARTS] = finite ? d : f32(NAN_BITS);
}
