// Kernels that call: built by code_objects.py into code_objects.npz. Functions lie before the kernels in the file, so
// they lie at lower addresses; `far` is more than a page away.
#define GLOBAL __attribute__((address_space(1)))

static const int primes[16] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53};

static __attribute__((noinline)) int weigh(int a, int b) { return primes[a & 15] * b - (a >> 2); }

static __attribute__((noinline)) int twice(int a, int b) { return weigh(a, b) + 3 * weigh(b, a); }

__attribute__((amdgpu_kernel)) void near(GLOBAL int *out, int n) {
  int i = __builtin_amdgcn_workitem_id_x();
  out[i] = twice(i, n) + weigh(n, i);
}

__attribute__((amdgpu_kernel, aligned(0x40000))) void far(GLOBAL int *out, int n) {
  int i = __builtin_amdgcn_workitem_id_x();
  out[i] = twice(n, i);
}

// lane `at` stores to address 0
__attribute__((amdgpu_kernel)) void null(int at) {
  if (__builtin_amdgcn_workitem_id_x() == (unsigned)at) *(volatile GLOBAL int *)0 = at;
}

// waits for somebody else's flag
__attribute__((amdgpu_kernel)) void spin(GLOBAL int *flag) {
  while (!__scoped_atomic_load_n(flag, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)) __builtin_amdgcn_s_sleep(1);
}
