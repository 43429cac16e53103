// RMS norm of one group of neighbours by one workgroup; docs/canonical-1.md, "Dot product" and RMS_NORM. The source
// includes kernel.glsl with SUM_ROWS 1, and says what the elements are.
#ifndef NORM_GLSL
#define NORM_GLSL

float normed_element(uint k);  // the k-th of the group

// 1 / sqrt(dot(x, x) / size + eps), in every lane.
float norm_reciprocal(uint size, float eps) {
    vec4 squares = vec4(0.0);
    for (uint k = 4u * lane; k < size; k += 4u * LANES) {
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            float x = normed_element(min(k + i, size - 1u));
            squares[i] += k + i < size ? x * x : 0.0;
        }
    }
    put_sum(0u, squares);
    barrier();
    return frsqrt_(fdiv_(sum_of(0u), float(size)) + eps);
}

#endif
