// The dots of this machine, under names without a prefix.
//
// BIAS is what `dot4` adds to each weight before it multiplies: a whole sum is too large by BIAS * sum(x).
// `lanes4` takes weights that were stored with it added. NT is the tokens whose sums the registers hold.
#pragma once
#include "dot_any.h"

#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#include "dot_avx512.h"
#define BIAS 128
#define dot4 avx512_dot4_biased
#define dot4_small avx512_dot4_small
#define scaled avx512_scaled
#define affine avx512_affine
#define lanes4 avx512_lanes4
#define lanes4_small avx512_lanes4
#define lanes2 avx512_lanes2
#define NT 8
#define dot2x8 avx512_dot2x8
#define dot2x16 avx512_dot2x16
#elif defined(__AVX2__)
#include "dot_avx2.h"
#define BIAS 0
#define dot4 avx2_dot4
#define dot4_small avx2_dot4_small
#define scaled avx2_scaled
#define affine any_affine
#define lanes4 avx2_lanes4
#define lanes4_small avx2_lanes4_small
#define lanes2 avx2_lanes2
#define NT 4
#define dot2x8 avx2_dot2x8
#define dot2x16 avx2_dot2x16
#elif defined(__ARM_FEATURE_DOTPROD)
#include "dot_neon.h"
#define BIAS 0
#define dot4 neon_dot4
#define dot4_small neon_dot4_small
#define scaled neon_scaled
#define affine any_affine
#define lanes4 neon_lanes4
#define lanes4_small neon_lanes4
#define lanes2 any_lanes2
#define NT 4
#define dot2x8 any_dot2x8
#define dot2x16 any_dot2x16
#else
#define BIAS 0
#define dot4 any_dot4
#define dot4_small any_dot4_small
#define scaled any_scaled
#define affine any_affine
#define lanes4 any_lanes4
#define lanes4_small any_lanes4_small
#define lanes2 any_lanes2
#define NT 4
#define dot2x8 any_dot2x8
#define dot2x16 any_dot2x16
#endif
