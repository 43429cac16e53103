// Kernels of many kinds, for tests of what reads machine code. Compiled for gfx1201, not part of the runtime.

typedef unsigned int u32;
typedef unsigned long u64;
typedef _Float16 f16;
typedef unsigned char u8;
typedef signed char i8;
typedef float f4 __attribute__((ext_vector_type(4)));
typedef f16 h2 __attribute__((ext_vector_type(2)));
typedef f16 h8 __attribute__((ext_vector_type(8)));
typedef float f8 __attribute__((ext_vector_type(8)));
#define G __attribute__((address_space(1)))
#define L __attribute__((address_space(3), loader_uninitialized))
#define C __attribute__((address_space(4)))
#define KERNEL(n) __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, n))) void
#define TID __builtin_amdgcn_workitem_id_x()
#define GID __builtin_amdgcn_workgroup_id_x()
#define BARRIER                                        \
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
  __builtin_amdgcn_s_barrier();                        \
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup")

KERNEL(256) scale(G float *a, float s, int n) {
  int i = GID * 256 + TID;
  if (i < n) a[i] *= s;
}

KERNEL(64) scalar_sum(G float *y, C const float *x, int n) {
  float s = 0;
  for (int i = 0; i < n; i++) s += x[i];
  y[GID] = s;
}

KERNEL(64) dot(G float *y, const G float *x, const G float *w, int n) {
  float s = 0;
  w += GID * n;
  for (int i = TID; i < n; i += 64) s += x[i] * w[i];
  y[GID * 64 + TID] = s;
}

KERNEL(64) dot_vectors(G float *y, const G f4 *x, const G f4 *w, int n) {
  f4 s = 0;
  w += GID * n;
  for (int i = TID; i < n; i += 64) s += x[i] * w[i];
  y[GID * 64 + TID] = s.x + s.y + s.z + s.w;
}

KERNEL(256) reduce(G float *y, const G float *x) {
  static L float t[256];
  t[TID] = x[GID * 256 + TID];
  BARRIER;
  for (int d = 128; d; d >>= 1) {
    if (TID < d) t[TID] += t[TID + d];
    BARRIER;
  }
  if (!TID) y[GID] = t[0];
}

KERNEL(256) transpose(G float *y, const G float *x, int n) {
  static L float tile[16][17];
  u32 r = TID >> 4, c = TID & 15;
  tile[r][c] = x[r * n + c];
  BARRIER;
  y[r * n + c] = tile[c][r];
}

KERNEL(256) histogram(G u32 *y, const G u8 *x, int n) {
  static L u32 h[256];
  h[TID] = 0;
  BARRIER;
  for (int i = TID; i < n; i += 256) __atomic_fetch_add(&h[x[i]], 1, __ATOMIC_RELAXED);
  BARRIER;
  __atomic_fetch_add(&y[TID], h[TID], __ATOMIC_RELAXED);
}

KERNEL(64) atomic_return(G u32 *y, G u32 *c) {
  u32 at = __atomic_fetch_add(c, 1, __ATOMIC_RELAXED);
  y[at] = TID;
}

KERNEL(64) publish(G u32 *y, G u32 *flag, int n) {
  y[TID] = n;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
}

KERNEL(64) spin(G u32 *y, G u32 *flag) {
  while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE)) __builtin_amdgcn_s_sleep(1);
  y[TID] += 1;
}

KERNEL(64) branches(G int *y, const G int *x) {
  int v = x[TID], r = 0;
  while (v > 1) {
    r++;
    v = v & 1 ? 3 * v + 1 : v >> 1;
  }
  y[TID] = r;
}

KERNEL(64) cases(G int *y, const G int *x, int m) {
  int v = x[TID];
  switch (m) {
    case 0: v += 1;
    break;
    case 1: v *= v;
    break;
    case 2: v = -v;
    break;
    case 3: v ^= 99;
    break;
    case 7: v = v / 3;
    break;
    default: v = x[v & 63];
  }
  y[TID] = v;
}

KERNEL(64) division(G float *y, const G float *x) {
  y[TID] = x[TID] / x[TID + 64];
}

KERNEL(64) square_root(G float *y, const G float *x) {
  y[TID] = __builtin_sqrtf(x[TID]) + __builtin_fmaf(x[1], x[2], 3);
}

KERNEL(64) doubles(G double *y, const G double *x, int n) {
  double s = 0;
  for (int i = 0; i < n; i++) s += x[i * 64 + TID] / (1.0 + i);
  y[TID] = s;
}

KERNEL(64) halves(G h2 *y, const G h2 *x, int n) {
  h2 s = 0;
  for (int i = 0; i < n; i++) s += x[i * 64 + TID] * x[i];
  y[TID] = s;
}

KERNEL(64) integer_division(G int *y, const G int *x, int d) {
  y[TID] = x[TID] / d + x[TID] % (d + 1);
}

KERNEL(64) long_integers(G u64 *y, const G u64 *x, u64 m) {
  u64 v = x[TID];
  for (int i = 0; i < 5; i++) v = v * m + (v >> 33);
  y[TID] = v / 10;
}

KERNEL(64) scratch(G int *y, const G int *x, int n) {
  volatile int t[64];
  for (int i = 0; i < 64; i++) t[i] = x[i * 64 + TID];
  int s = 0;
  for (int i = 0; i < n; i++) s = s * 3 + t[s & 63];
  y[TID] = s;
}

KERNEL(64) generic(G int *y, const int *x, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s += x[i * 64 + TID];
  y[TID] = s;
}

KERNEL(64) generic_or_lds(G int *y, const G int *x, int n) {
  static L int t[64];
  t[TID] = n;
  BARRIER;
  const int *p = n & 1 ? (const int *)t : (const int *)x;
  y[TID] = p[TID ^ 1];
}

#if WAVE == 32
KERNEL(64) ballot(G u32 *y, const G int *x) {
  u32 m = __builtin_amdgcn_ballot_w32(x[TID] > 0);
  y[TID] = __builtin_popcount(m) + __builtin_amdgcn_mbcnt_lo(m, 0);
}
#endif

KERNEL(64) shuffle(G int *y, const G int *x) {
  int v = x[TID];
  for (int d = 1; d < 32; d <<= 1) v += __builtin_amdgcn_ds_bpermute((TID ^ d) << 2, v);
  y[TID] = v;
}

KERNEL(64) first_lane(G int *y, const G int *x, C const int *t) {
  int v = x[TID];
  int s = __builtin_amdgcn_readfirstlane(v);
  y[TID] = t[s & 63] + __builtin_amdgcn_readlane(v, 5) + v;
}

KERNEL(64) permlane(G int *y, const G int *x, int s) {
  int v = x[TID];
  if (v > s) v = __builtin_amdgcn_permlanex16(v, v, s, 7, 0, 0);
  y[TID] = v;
}

#if WAVE == 32
KERNEL(32) wmma(G f8 *y, const G h8 *a, const G h8 *b, int n) {
  f8 c = 0;
  for (int i = 0; i < n; i++) c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a[i * 32 + TID], b[i * 32 + TID], c);
  y[TID] = c;
}
#endif

KERNEL(64) dot4(G int *y, const G int *a, const G int *b, int n) {
  int s = 0;
  for (int i = 0; i < n; i++) s = __builtin_amdgcn_sudot4(1, a[i * 64 + TID], 1, b[i * 64 + TID], s, 0);
  y[TID] = s;
}

KERNEL(64) exponential(G float *y, const G float *x) {
  float v = x[TID];
  y[TID] = __builtin_amdgcn_exp2f(v) * __builtin_amdgcn_rcpf(1 + v) + __builtin_amdgcn_logf(v);
}

KERNEL(64) bytes(G u8 *y, const G i8 *x, int n) {
  for (int i = TID; i < n; i += 64) y[i] = (u8)(x[i] * 3 + x[i ^ 1]);
}

KERNEL(64) softmax(G float *y, const G float *x, int n) {
  float m = -1e30f;
  x += GID * n;
  y += GID * n;
  for (int i = 0; i < n; i++) m = __builtin_fmaxf(m, x[i]);
  float s = 0;
  for (int i = TID; i < n; i += 64) {
    float e = __builtin_amdgcn_exp2f((x[i] - m) * 1.442695f);
    s += e;
    y[i] = e;
  }
  for (int i = TID; i < n; i += 64) y[i] /= s;
}

KERNEL(64) many_scalars(G int *y, C const int *t, const G int *x, int a, int b, int c, int d) {
  int v = x[TID];
  for (int i = 0; i < d; i++) {
    int p = t[i] + a, q = t[i + 1] * b, r = t[i + 2] - c;
    v = v * p + q;
    if (v > r) v -= p * q;
    a += q;
    b ^= r;
    c += p;
  }
  y[TID] = v;
}

struct S {
  float m;
  int n;
  G float *p;
};

KERNEL(64) structure(G float *y, C const struct S *s, int n) {
  float v = 0;
  for (int i = 0; i < n; i++) if (s[i].n > TID) v += s[i].m * s[i].p[TID];
  y[TID] = v;
}

KERNEL(256) neighbours(G float *y, int n) {
  for (int i = 0; i < n; i++) {
    float v = y[(TID + i) & 255];
    BARRIER;
    y[TID] = v * 2;
    BARRIER;
  }
}

KERNEL(128) pipelined(G float *y, const G f4 *x, int n) {
  static L f4 t[128];
  f4 next = x[TID], s = 0;
  for (int i = 1; i <= n; i++) {
    t[TID] = next;
    BARRIER;
    next = x[i * 128 + TID];
    for (int j = 0; j < 8; j++) s += t[(TID + j) & 127] * t[(TID + 16 * j) & 127];
    BARRIER;
  }
  y[TID] = s.x + s.y + s.z + s.w;
}

KERNEL(32) unrolled(G float *y, const G f4 *w, const G f4 *x) {
  f4 s[8] = {0};
  for (int i = 0; i < 16; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) s[j] += w[(j * 16 + i) * 32 + TID] * x[i * 32 + TID];
#pragma unroll
  for (int j = 0; j < 8; j++) y[j * 32 + TID] = (s[j].x + s[j].y) + (s[j].z + s[j].w);
}

__attribute__((noinline)) static int called(int a, G const int *x) { return x[a & 31] + a * 3; }

KERNEL(64) calls(G int *y, const G int *x, int n) {
  int s = n;
  for (int i = 0; i < n; i++) s += called(s + i, x);
  y[TID] = s;
}

KERNEL(64) search(G int *y, const G int *x, int n, int k) {
  int lo = 0, hi = n;
  while (lo < hi) {
    int mid = (lo + hi) >> 1;
    if (x[mid] < k + (int)TID) lo = mid + 1;
    else hi = mid;
  }
  y[TID] = lo;
}

KERNEL(64) masks(G int *y, const G int *x, int a, int b, int c) {
  int v = x[TID], w = x[TID + 64];
  if ((v > a && w < b) || (v == c) != (w > c)) v = w > a ? v + b : w - c;
  if (v > w + a) y[TID] = v;
  else if (v < b) y[TID + 64] = w + v;
}
