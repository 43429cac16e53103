// The vector functions under test, over arrays: test_native_functions.py compiles it with the kernels' own flags.
#include "../../../zinc_rt/kernels/native/include/activations.h"
#include "../../../zinc_rt/kernels/native/include/kv.h"

#define EXPORT __attribute__((visibility("default")))

INLINE void each(const float *x, float *y, uint32_t n, f32x16 (*f)(f32x16)) {
    for (uint32_t i = 0; i < n; i += 16) store16(y + i, f(load16(x + i)));
}

INLINE f32x16 rsqrt16(f32x16 x) {
    f32x16 y;
    for (int i = 0; i < 16; i++) y[i] = rsqrt1(x[i]);
    return y;
}

INLINE f32x16 half16(f32x16 x) {
    uint16_t halves[16];
    store_halves16(halves, x);
    return halves16(halves);
}

EXPORT void test_half(const float *x, float *y, uint32_t n) { each(x, y, n, half16); }
EXPORT void test_exp(const float *x, float *y, uint32_t n) { each(x, y, n, exp16); }
EXPORT void test_log(const float *x, float *y, uint32_t n) { each(x, y, n, log16); }
EXPORT void test_sigmoid(const float *x, float *y, uint32_t n) { each(x, y, n, sigmoid16); }
EXPORT void test_silu(const float *x, float *y, uint32_t n) { each(x, y, n, silu16); }
EXPORT void test_tanh(const float *x, float *y, uint32_t n) { each(x, y, n, tanh16); }
EXPORT void test_gelu(const float *x, float *y, uint32_t n) { each(x, y, n, gelu16); }
EXPORT void test_softplus(const float *x, float *y, uint32_t n) { each(x, y, n, softplus16); }
EXPORT void test_rsqrt(const float *x, float *y, uint32_t n) { each(x, y, n, rsqrt16); }
