// HIP device code for `zinc-rt launch k.hip`: what a kernel needs without ROCm's headers. Included before the source,
// and found as <hip/hip_runtime.h>. Work-item ids, barriers, fences, atomics, lane exchange, and the functions that
// one instruction or LLVM's own expansion computes. No host API. docs/launch.md lists them.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads, ...) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define ZRT static __device__ inline __attribute__((always_inline, nodebug))  // nodebug: the caller's lines

typedef __SIZE_TYPE__ size_t;
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef unsigned int uint;

// --- work-items. The hidden arguments: LLVM AMDGPUUsage, code object version 5.

#define ZRT_CONSTANT __attribute__((address_space(4)))
#define ZRT_HIDDEN(type, at) \
  (*(const ZRT_CONSTANT type *)((const ZRT_CONSTANT char *)__builtin_amdgcn_implicitarg_ptr() + (at)))
#define ZRT_TRIPLE(name, x_, y_, z_)                                    \
  struct zrt_##name {                                                   \
    __declspec(property(get = get_x)) unsigned x;                       \
    __declspec(property(get = get_y)) unsigned y;                       \
    __declspec(property(get = get_z)) unsigned z;                       \
    ZRT unsigned get_x() { return x_; }                                 \
    ZRT unsigned get_y() { return y_; }                                 \
    ZRT unsigned get_z() { return z_; }                                 \
  };                                                                    \
  extern const __device__ __attribute__((weak)) zrt_##name name;
ZRT_TRIPLE(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
           __builtin_amdgcn_workitem_id_z())
ZRT_TRIPLE(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
           __builtin_amdgcn_workgroup_id_z())
ZRT_TRIPLE(gridDim, ZRT_HIDDEN(unsigned, 0), ZRT_HIDDEN(unsigned, 4), ZRT_HIDDEN(unsigned, 8))
ZRT_TRIPLE(blockDim, ZRT_HIDDEN(unsigned short, 12), ZRT_HIDDEN(unsigned short, 14), ZRT_HIDDEN(unsigned short, 16))
#undef ZRT_TRIPLE
#define warpSize __builtin_amdgcn_wavefrontsize()
ZRT unsigned __lane_id() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }

// --- barriers and fences

__attribute__((convergent)) ZRT void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
ZRT void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
ZRT void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
ZRT void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }

// --- atomics, relaxed and device-wide

#define ZRT_RELAXED __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE
template <typename T, typename V> ZRT T atomicAdd(T *p, V v) { return __scoped_atomic_fetch_add(p, (T)v, ZRT_RELAXED); }
template <typename T, typename V> ZRT T atomicSub(T *p, V v) { return __scoped_atomic_fetch_sub(p, (T)v, ZRT_RELAXED); }
template <typename T, typename V> ZRT T atomicMin(T *p, V v) { return __scoped_atomic_fetch_min(p, (T)v, ZRT_RELAXED); }
template <typename T, typename V> ZRT T atomicMax(T *p, V v) { return __scoped_atomic_fetch_max(p, (T)v, ZRT_RELAXED); }
template <typename T, typename V> ZRT T atomicAnd(T *p, V v) { return __scoped_atomic_fetch_and(p, (T)v, ZRT_RELAXED); }
template <typename T, typename V> ZRT T atomicOr(T *p, V v) { return __scoped_atomic_fetch_or(p, (T)v, ZRT_RELAXED); }
template <typename T, typename V> ZRT T atomicXor(T *p, V v) { return __scoped_atomic_fetch_xor(p, (T)v, ZRT_RELAXED); }
template <typename T, typename V> ZRT T atomicExch(T *p, V v) {
  T value = (T)v, old;
  __scoped_atomic_exchange(p, &value, &old, ZRT_RELAXED);
  return old;
}
template <typename T, typename V> ZRT T atomicCAS(T *p, V expected, V v) {
  T old = (T)expected, value = (T)v;
  __scoped_atomic_compare_exchange(p, &old, &value, false, __ATOMIC_RELAXED, ZRT_RELAXED);
  return old;
}

// --- lanes: 32-bit values

template <typename T> ZRT T __shfl(T value, int lane, int width = 32) {
  int from = ((int)__lane_id() & ~(width - 1)) + (lane & (width - 1));
  return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(from << 2, __builtin_bit_cast(int, value)));
}
template <typename T> ZRT T __shfl_xor(T value, int mask, int width = 32) {
  return __shfl(value, (int)__lane_id() ^ mask, width);
}
template <typename T> ZRT T __shfl_down(T value, unsigned delta, int width = 32) {
  int lane = (int)__lane_id() & (width - 1);
  return __shfl(value, lane + (int)delta < width ? lane + (int)delta : lane, width);
}
template <typename T> ZRT T __shfl_up(T value, unsigned delta, int width = 32) {
  int lane = (int)__lane_id() & (width - 1);
  return __shfl(value, lane >= (int)delta ? lane - (int)delta : lane, width);
}

// --- arithmetic

template <typename T> ZRT T min(T a, T b) { return a < b ? a : b; }
template <typename T> ZRT T max(T a, T b) { return a > b ? a : b; }
#define ZRT_1(name, builtin) \
  ZRT float name(float x) { return builtin(x); }
ZRT_1(sqrtf, __builtin_sqrtf)
ZRT_1(fabsf, __builtin_fabsf)
ZRT_1(floorf, __builtin_floorf)
ZRT_1(ceilf, __builtin_ceilf)
ZRT_1(truncf, __builtin_truncf)
ZRT_1(rintf, __builtin_rintf)
ZRT_1(expf, __builtin_expf)
ZRT_1(exp2f, __builtin_exp2f)
ZRT_1(logf, __builtin_logf)
ZRT_1(log2f, __builtin_log2f)
ZRT_1(__frsqrt_rn, __builtin_amdgcn_rsqf)
#undef ZRT_1
ZRT float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
ZRT float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
ZRT float fminf(float a, float b) { return __builtin_fminf(a, b); }
ZRT float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
ZRT int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
ZRT float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
