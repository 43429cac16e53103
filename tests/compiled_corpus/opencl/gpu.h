/* What the kernels share: types, ids without a library, a work-group's barrier. No header of OpenCL's is needed. */
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#define VECTOR(type, n) typedef type type##n __attribute__((ext_vector_type(n)))
VECTOR(uchar, 4);
VECTOR(char, 4);
VECTOR(ushort, 4);
VECTOR(int, 4);
VECTOR(float, 4);
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
VECTOR(half, 2);
#define memory_scope_work_group __OPENCL_MEMORY_SCOPE_WORK_GROUP
#define memory_scope_device __OPENCL_MEMORY_SCOPE_DEVICE
#define memory_scope_all_svm_devices __OPENCL_MEMORY_SCOPE_ALL_SVM_DEVICES
#define ID ((uint)__builtin_amdgcn_workitem_id_x())
#define IDY ((uint)__builtin_amdgcn_workitem_id_y())
#define GROUP ((uint)__builtin_amdgcn_workgroup_id_x())
#define SIZE ((uint)__builtin_amdgcn_workgroup_size_x())
#define NOINLINE __attribute__((noinline))
#define SIZED(n) __attribute__((reqd_work_group_size(n, 1, 1)))
#define ADD(p, v, order, scope) __opencl_atomic_fetch_add(p, v, __ATOMIC_##order, memory_scope_##scope)

static inline void meet(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
