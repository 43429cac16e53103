// Kernels of tests/launching: built by code_objects.py into code_objects.npz.
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))
#define IMPLICIT ((const __attribute__((address_space(4))) unsigned short *)__builtin_amdgcn_implicitarg_ptr())

static inline unsigned work_item(void) {
  unsigned first = __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workgroup_id_x() * IMPLICIT[6]);
  return first + __builtin_amdgcn_workitem_id_x();
}

__attribute__((amdgpu_kernel)) void saxpy(GLOBAL float *y, GLOBAL const float *x, float a, int n) {
  unsigned i = work_item();
  if (i < (unsigned)n) y[i] = a * x[i] + y[i];
}

// needs scratch: an array that is indexed by data
__attribute__((amdgpu_kernel)) void gather(GLOBAL int *out, int step) {
  volatile int held[40];
  unsigned i = work_item();
  for (int k = 0; k < 40; k++) held[k] = i * k;
  int sum = 0;
  for (int k = 0; k < 40; k += 2) sum += held[(k * 7 + step) % 40];
  out[i] = sum;
}

// static LDS
static LOCAL __attribute__((loader_uninitialized)) int shared[64];

__attribute__((amdgpu_kernel)) void reverse(GLOBAL int *out, GLOBAL const int *in) {
  unsigned lane = __builtin_amdgcn_workitem_id_x(), group = __builtin_amdgcn_workgroup_id_x() * 64;
  shared[lane] = 2 * in[group + lane];
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[group + lane] = shared[63 - lane];
}

// dynamic LDS: the address comes as an argument
__attribute__((amdgpu_kernel)) void rotate(GLOBAL int *out, GLOBAL const int *in, LOCAL int *held) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  held[lane] = in[lane];
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[lane] = held[(lane + 1) % 64];
}

// every hidden argument of sizes: what a launch of any shape looks like from inside
__attribute__((amdgpu_kernel)) void shape(GLOBAL unsigned *out) {
  const __attribute__((address_space(4))) unsigned *counts = (const void __attribute__((address_space(4))) *)IMPLICIT;
  if (__builtin_amdgcn_workgroup_id_x() || __builtin_amdgcn_workitem_id_x()) return;
  if (__builtin_amdgcn_workgroup_id_y() || __builtin_amdgcn_workitem_id_y()) return;
  for (int k = 0; k < 3; k++) out[k] = counts[k];
  for (int k = 0; k < 6; k++) out[3 + k] = IMPLICIT[6 + k];
  out[9] = IMPLICIT[32];
}
