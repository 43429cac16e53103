#version 460
#extension GL_GOOGLE_include_directive : require
#define WORKGROUP 128
#include "kernel.glsl"

// Sums in shared memory by a tree over the first `size` invocations, for every size from 1 to 128: y[size - 1] is
// the sum of x's first `size`. One workgroup.
KERNARG(U32 x; U32RW y;)

shared uint sums[WORKGROUP];

void main() {
    for (uint size = 1u; size <= WORKGROUP; size++) {
        sums[lane] = lane < size ? args.x.v[lane] : 0u;
        barrier();
        for (uint half_ = WORKGROUP / 2u; half_ > 0u; half_ >>= 1) {
            if (lane < half_) sums[lane] += sums[lane + half_];
            barrier();
        }
        if (lane == 0u) args.y.v[size - 1u] = sums[0];
        barrier();
    }
}
