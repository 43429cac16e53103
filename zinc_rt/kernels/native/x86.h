// The intrinsics. immintrin.h would bring stdlib.h for _mm_malloc; a machine that compiles this may have no C library's
// headers, and a cross compilation has none.
#pragma once
#define __MM_MALLOC_H
#include <immintrin.h>
