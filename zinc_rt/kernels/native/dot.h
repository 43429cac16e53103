// The dots of this machine, under names without a prefix.
//
// BIAS: what `dot_q8` adds to each weight before it multiplies, so that the whole sum is too large by BIAS * sum(x).
#pragma once
#include "dot_any.h"

#define BIAS 0
#define dot4 any_dot4
#define scaled any_scaled
#define dot2x8 any_dot2x8
#define dot2x16 any_dot2x16
INLINE i32x8 dot_q8(const uint8_t *w, const int8_t *x) {
    return any_dot4((i32x8){0}, *(const i8x32u *)w, *(const i8x32u *)x);
}
