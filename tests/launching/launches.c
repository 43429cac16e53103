// Kernels for the arguments of a launch: built by code_objects.py into code_objects.npz.
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))
#define KERNEL __attribute__((amdgpu_kernel)) void
#define IMPLICIT ((const __attribute__((address_space(4))) unsigned *)__builtin_amdgcn_implicitarg_ptr())

static LOCAL __attribute__((loader_uninitialized)) int own[3];
extern LOCAL int dynamic[];

// dynamic LDS after 12 bytes of static LDS
KERNEL turn(GLOBAL int *out, GLOBAL const int *in) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  if (!lane) own[2] = in[0];
  dynamic[lane] = in[lane];
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[lane] = dynamic[(lane + 1) % 64] + own[2];
}

// all 256 bytes of hidden arguments, at an index that the compiler does not know
KERNEL hidden(GLOBAL unsigned *out) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  unsigned others = __builtin_amdgcn_workgroup_id_x() | __builtin_amdgcn_workgroup_id_y();
  if (!(others | __builtin_amdgcn_workgroup_id_z() | __builtin_amdgcn_workitem_id_y())) out[lane] = IMPLICIT[lane];
}

// an optional input
KERNEL bias(GLOBAL int *out, GLOBAL const int *in) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  out[lane] = in ? in[lane] : 7;
}

// bfloat16 and fp8 by their bits: negates
KERNEL negate(GLOBAL unsigned short *halves, GLOBAL unsigned char *bytes) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  halves[lane] ^= 0x8000;
  bytes[lane] ^= 0x80;
}

__attribute__((amdgpu_flat_work_group_size(1, 64))) KERNEL narrow(GLOBAL int *out) {
  out[__builtin_amdgcn_workitem_id_x()] = 1;
}

static LOCAL __attribute__((loader_uninitialized)) int word;

// both waves store the word: the same value, or their own number
KERNEL replicate(GLOBAL int *out, int own) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  word = own ? lane / 32 : 7;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  out[lane] = word;
}
