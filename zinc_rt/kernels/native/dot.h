// The dots of this machine, under names without a prefix.
//
// BIAS is what `dot4` adds to each weight before it multiplies: a whole sum is too large by BIAS * sum(x).
#pragma once
#include "dot_any.h"

#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#include "dot_avx512.h"
#define BIAS 128
#define dot4 avx512_dot4_biased
#define dot4_small avx512_dot4_small
#define scaled avx512_scaled
#define dot2x8 avx512_dot2x8
#define dot2x16 avx512_dot2x16
#elif defined(__AVX2__)
#include "dot_avx2.h"
#define BIAS 0
#define dot4 avx2_dot4
#define dot4_small avx2_dot4_small
#define scaled avx2_scaled
#define dot2x8 avx2_dot2x8
#define dot2x16 avx2_dot2x16
#elif defined(__ARM_FEATURE_DOTPROD)
#include "dot_neon.h"
#define BIAS 0
#define dot4 neon_dot4
#define dot4_small neon_dot4_small
#define scaled neon_scaled
#define dot2x8 any_dot2x8
#define dot2x16 any_dot2x16
#else
#define BIAS 0
#define dot4 any_dot4
#define dot4_small any_dot4_small
#define scaled any_scaled
#define dot2x8 any_dot2x8
#define dot2x16 any_dot2x16
#endif
