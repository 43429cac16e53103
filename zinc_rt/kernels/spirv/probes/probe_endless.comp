#version 460
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"

// Does not end until another stores into `stop`: what a hung kernel does. One workgroup.
layout(buffer_reference, scalar, buffer_reference_align = 4) volatile buffer Stop { uint v[]; };
KERNARG(Stop stop; U32RW turns;)

void main() {
    uint turns = 0u;
    while (args.stop.v[0] == 0u) turns++;
    args.turns.v[lane] = turns;
}
