/* What the test kernels share: names of types and of the few things C has no word for. */
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long i64;
typedef unsigned long u64;
typedef _Float16 f16;

#define KERNEL __attribute__((amdgpu_kernel, visibility("protected"), amdgpu_flat_work_group_size(1, 256))) void
#define LDS static __attribute__((address_space(3), loader_uninitialized))
#define NOINLINE __attribute__((noinline))
#define thread() __builtin_amdgcn_workitem_id_x()
#define group() __builtin_amdgcn_workgroup_id_x()

static inline void barrier(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
