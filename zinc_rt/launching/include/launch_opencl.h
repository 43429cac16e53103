// OpenCL C for `zinc-rt launch k.cl`: what a kernel needs without ROCm's or clang's headers. Included before the
// source. Work-item functions, barriers, fences, atomics, vector types, and the functions that one instruction or
// LLVM's own expansion computes. docs/launch.md lists them.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;

#define ZRT_VECTORS(type)                                  \
  typedef type type##2 __attribute__((ext_vector_type(2))); \
  typedef type type##3 __attribute__((ext_vector_type(3))); \
  typedef type type##4 __attribute__((ext_vector_type(4))); \
  typedef type type##8 __attribute__((ext_vector_type(8))); \
  typedef type type##16 __attribute__((ext_vector_type(16)))
ZRT_VECTORS(char);
ZRT_VECTORS(uchar);
ZRT_VECTORS(short);
ZRT_VECTORS(ushort);
ZRT_VECTORS(int);
ZRT_VECTORS(uint);
ZRT_VECTORS(long);
ZRT_VECTORS(ulong);
ZRT_VECTORS(float);
ZRT_VECTORS(double);
#undef ZRT_VECTORS

#define NULL ((void *)0)
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define ZRT __attribute__((always_inline, nodebug, overloadable)) static inline  // nodebug: the caller's lines

typedef enum memory_order {
  memory_order_relaxed = __ATOMIC_RELAXED,
  memory_order_acquire = __ATOMIC_ACQUIRE,
  memory_order_release = __ATOMIC_RELEASE,
  memory_order_acq_rel = __ATOMIC_ACQ_REL,
  memory_order_seq_cst = __ATOMIC_SEQ_CST
} memory_order;
typedef enum memory_scope {
  memory_scope_work_item = __OPENCL_MEMORY_SCOPE_WORK_ITEM,
  memory_scope_work_group = __OPENCL_MEMORY_SCOPE_WORK_GROUP,
  memory_scope_device = __OPENCL_MEMORY_SCOPE_DEVICE,
  memory_scope_all_svm_devices = __OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES,
  memory_scope_sub_group = __OPENCL_MEMORY_SCOPE_SUB_GROUP
} memory_scope;

// --- work-items. The hidden arguments: LLVM AMDGPUUsage, code object version 5.

#define ZRT_HIDDEN(type, at) (*(__constant type *)((__constant char *)__builtin_amdgcn_implicitarg_ptr() + (at)))

ZRT size_t get_local_id(uint axis) {
  return axis == 0   ? __builtin_amdgcn_workitem_id_x()
         : axis == 1 ? __builtin_amdgcn_workitem_id_y()
         : axis == 2 ? __builtin_amdgcn_workitem_id_z()
                     : 0;
}
ZRT size_t get_group_id(uint axis) {
  return axis == 0   ? __builtin_amdgcn_workgroup_id_x()
         : axis == 1 ? __builtin_amdgcn_workgroup_id_y()
         : axis == 2 ? __builtin_amdgcn_workgroup_id_z()
                     : 0;
}
ZRT size_t get_num_groups(uint axis) { return axis < 3 ? ZRT_HIDDEN(uint, 4 * axis) : 1; }
ZRT size_t get_local_size(uint axis) { return axis < 3 ? ZRT_HIDDEN(ushort, 12 + 2 * axis) : 1; }
ZRT size_t get_enqueued_local_size(uint axis) { return get_local_size(axis); }
ZRT size_t get_global_offset(uint axis) { return axis < 3 ? ZRT_HIDDEN(ulong, 40 + 8 * axis) : 0; }
ZRT uint get_work_dim(void) { return ZRT_HIDDEN(ushort, 64); }
ZRT size_t get_global_size(uint axis) { return get_num_groups(axis) * get_local_size(axis); }
ZRT size_t get_global_id(uint axis) {
  return get_global_offset(axis) + get_group_id(axis) * get_local_size(axis) + get_local_id(axis);
}

// --- barriers and fences

ZRT void mem_fence(uint flags) { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup"); }
ZRT void read_mem_fence(uint flags) { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); }
ZRT void write_mem_fence(uint flags) { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); }
__attribute__((convergent)) ZRT void barrier(uint flags) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define work_group_barrier(...) barrier(0)

// --- atomics: those of OpenCL 1.2, relaxed and device-wide, and those of OpenCL 2

#define ZRT_RELAXED __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE
#define ZRT_ATOMIC(name, operation, type, space) \
  ZRT type name(volatile space type *p, type v) { return operation(p, v, ZRT_RELAXED); }
#define ZRT_ATOMICS(type, space)                                                       \
  ZRT_ATOMIC(atomic_add, __scoped_atomic_fetch_add, type, space)                       \
  ZRT_ATOMIC(atomic_sub, __scoped_atomic_fetch_sub, type, space)                       \
  ZRT_ATOMIC(atomic_and, __scoped_atomic_fetch_and, type, space)                       \
  ZRT_ATOMIC(atomic_or, __scoped_atomic_fetch_or, type, space)                         \
  ZRT_ATOMIC(atomic_xor, __scoped_atomic_fetch_xor, type, space)                       \
  ZRT_ATOMIC(atomic_min, __scoped_atomic_fetch_min, type, space)                       \
  ZRT_ATOMIC(atomic_max, __scoped_atomic_fetch_max, type, space)                       \
  ZRT_ATOMIC(atomic_xchg, __scoped_atomic_exchange_n, type, space)                     \
  ZRT type atomic_inc(volatile space type *p) { return atomic_add(p, (type)1); }       \
  ZRT type atomic_dec(volatile space type *p) { return atomic_sub(p, (type)1); }       \
  ZRT type atomic_cmpxchg(volatile space type *p, type expected, type v) {             \
    __scoped_atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_RELAXED, ZRT_RELAXED); \
    return expected;                                                                   \
  }
ZRT_ATOMICS(int, __global)
ZRT_ATOMICS(uint, __global)
ZRT_ATOMICS(int, __local)
ZRT_ATOMICS(uint, __local)

#define ZRT_SEQ_CST memory_order_seq_cst, memory_scope_device
#define atomic_init(p, v) __opencl_atomic_init(p, v)
#define atomic_load(p) __opencl_atomic_load(p, ZRT_SEQ_CST)
#define atomic_load_explicit(p, ...) __opencl_atomic_load(p, __VA_ARGS__)
#define atomic_store(p, v) __opencl_atomic_store(p, v, ZRT_SEQ_CST)
#define atomic_store_explicit(p, v, ...) __opencl_atomic_store(p, v, __VA_ARGS__)
#define atomic_exchange(p, v) __opencl_atomic_exchange(p, v, ZRT_SEQ_CST)
#define atomic_fetch_add(p, v) __opencl_atomic_fetch_add(p, v, ZRT_SEQ_CST)
#define atomic_fetch_add_explicit(p, v, ...) __opencl_atomic_fetch_add(p, v, __VA_ARGS__)
#define atomic_fetch_sub(p, v) __opencl_atomic_fetch_sub(p, v, ZRT_SEQ_CST)
#define atomic_fetch_or(p, v) __opencl_atomic_fetch_or(p, v, ZRT_SEQ_CST)
#define atomic_fetch_and(p, v) __opencl_atomic_fetch_and(p, v, ZRT_SEQ_CST)
#define atomic_fetch_min(p, v) __opencl_atomic_fetch_min(p, v, ZRT_SEQ_CST)
#define atomic_fetch_max(p, v) __opencl_atomic_fetch_max(p, v, ZRT_SEQ_CST)

// --- arithmetic

#define ZRT_1(name, builtin) \
  ZRT float name(float x) { return builtin(x); }
ZRT_1(sqrt, __builtin_sqrtf)
ZRT_1(native_sqrt, __builtin_amdgcn_sqrtf)

ZRT_1(native_rsqrt, __builtin_amdgcn_rsqf)
ZRT_1(native_recip, __builtin_amdgcn_rcpf)
ZRT_1(fabs, __builtin_fabsf)
ZRT_1(floor, __builtin_floorf)
ZRT_1(ceil, __builtin_ceilf)
ZRT_1(trunc, __builtin_truncf)
ZRT_1(rint, __builtin_rintf)
ZRT_1(exp, __builtin_expf)
ZRT_1(exp2, __builtin_exp2f)
ZRT_1(log, __builtin_logf)
ZRT_1(log2, __builtin_log2f)
ZRT_1(native_exp2, __builtin_amdgcn_exp2f)
ZRT_1(native_log2, __builtin_amdgcn_logf)
#undef ZRT_1
ZRT float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
ZRT float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
ZRT float mad(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
ZRT float fmin(float a, float b) { return __builtin_fminf(a, b); }
ZRT float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
#define ZRT_MINMAX(type)                                  \
  ZRT type min(type a, type b) { return a < b ? a : b; } \
  ZRT type max(type a, type b) { return a > b ? a : b; } \
  ZRT type clamp(type x, type low, type high) { return min(max(x, low), high); }
ZRT_MINMAX(int)
ZRT_MINMAX(uint)
ZRT_MINMAX(long)
ZRT_MINMAX(ulong)
ZRT_MINMAX(float)
#undef ZRT_MINMAX
#define as_int(x) __builtin_astype((x), int)
#define as_uint(x) __builtin_astype((x), uint)
#define as_float(x) __builtin_astype((x), float)
