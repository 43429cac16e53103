#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// A word at base + (high << 32 | low): first what is there goes to `old`, then `value` is stored. One workgroup.
KERNARG(U32 base; U32RW old; uint low; uint high; uint value;)

void main() {
    if (lane != 0u) return;
    U32RW place = U32RW(uint64_t(args.base) + ((uint64_t(args.high) << 32) | uint64_t(args.low)));
    args.old.v[0] = place.v[0];
    place.v[0] = args.value;
}
