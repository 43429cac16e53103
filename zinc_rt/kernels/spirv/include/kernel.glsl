// What every kernel begins with:
//
//     #version 460
//     #extension GL_GOOGLE_include_directive : require
//     #include "kernel.glsl"
//
//     // ADD: y = a + b, f32. Grid: columns / 256 rounded up, rows.
//     KERNARG(F32 a; F32 b; F32RW y; uint columns;)
//
//     void main() { ... args.y.v[i] = args.a.v[i] + args.b.v[i]; ... }
//
// KERNARG lists the block of Launch.kernarg: the buffers in order (8-byte addresses, 0 where absent), then the
// constants (uint, int or float: 4 bytes). `zinc-rt vulkan compile NAME` compiles, decorates and lints it.
//
// - A workgroup has 32 invocations; `#define WORKGROUP 128` before the include for another number, at most 128.
// - present(args.w): whether an optional buffer is there.
// - A dot over lanes: `#define SUM_ROWS 8` before the include, then
//       put_sum(row, accumulators);     // each lane, its vec4 of sub-accumulators
//       barrier();
//       float s = sum_of(row);          // any lane: canonical-1's tree, -0 made +0
// - barrier() in uniform control flow only, nothing by subgroups, no array in a variable that is indexed by anything
//   but a constant or the counter of an [[unroll]] loop without a plain loop inside; shared memory is free to index.
// - Clamp an index that may lie beyond a buffer before the load (`min(row, n - 1u)`), guard the store.
#ifndef KERNEL_GLSL
#define KERNEL_GLSL
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_control_flow_attributes : require
#include "canonical.glsl"

#ifndef WORKGROUP
#define WORKGROUP 32
#endif
layout(local_size_x = WORKGROUP) in;

// Buffers by address; RW where the kernel stores. The element of a buffer: buffer.v[index].
#define BUFFER(name, access, type, alignment) \
    layout(buffer_reference, scalar, buffer_reference_align = alignment) access buffer name { type v[]; }
BUFFER(F32, readonly, float, 4);
BUFFER(U32, readonly, uint, 4);
BUFFER(I32, readonly, int, 4);
BUFFER(F32x4, readonly, vec4, 16);
BUFFER(U32x4, readonly, uvec4, 16);
BUFFER(U32x2, readonly, uvec2, 8);
BUFFER(F32RW, , float, 4);
BUFFER(U32RW, , uint, 4);
BUFFER(I32RW, , int, 4);
BUFFER(F32x4RW, , vec4, 16);

#define KERNARG(members) \
    layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Args { members }; \
    layout(push_constant) uniform Push { Args args; };

#define present(buffer) (uint64_t(buffer) != 0ul)

#define LANES 32u
#define lane gl_LocalInvocationID.x

#ifdef SUM_ROWS
shared float sums_[SUM_ROWS * 33];  // 33: neighbouring rows in other banks

void put_sum(uint row, vec4 a) { sums_[row * 33u + lane] = (a.x + a.y) + (a.z + a.w); }

float sum_of_eight_(uint at) {
    return ((sums_[at] + sums_[at + 1u]) + (sums_[at + 2u] + sums_[at + 3u]))
        + ((sums_[at + 4u] + sums_[at + 5u]) + (sums_[at + 6u] + sums_[at + 7u]));
}

float sum_of(uint row) {
    uint at = row * 33u;
    return no_minus_zero((sum_of_eight_(at) + sum_of_eight_(at + 8u))
        + (sum_of_eight_(at + 16u) + sum_of_eight_(at + 24u)));
}
#endif

#endif
