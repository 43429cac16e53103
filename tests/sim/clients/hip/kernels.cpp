// Kernels: arithmetic, LDS, atomics, scratch, cross-lane operations, printf.
#include "hip_programs.h"

static void vector_sum() {
  enum { COUNT = 100001 };
  std::vector<float> a(COUNT), b(COUNT);
  for (size_t i = 0; i < COUNT; i++) a[i] = float(i), b[i] = float(COUNT - 2 * i);
  Device<float> x(a), y(b), sum(size_t{COUNT});
  launch(kernel(R"(
extern "C" __global__ void add(const float *a, const float *b, float *sum, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = a[i] + b[i];
})", "add"), dim3((COUNT + 255) / 256), dim3(256), x.at, y.at, sum.at, int(COUNT));
  expect(sum.read(), [&](size_t i) { return a[i] + b[i]; });
}

static void grid_of_three_dimensions() {
  Device<unsigned> hits(7 * 5 * 3 * 4 * 3 * 2);
  HIP(hipMemset(hits.at, 0, hits.bytes()));
  launch(kernel(R"(
extern "C" __global__ void mark(unsigned *hits) {
  unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
  hits[(z * gridDim.y * blockDim.y + y) * gridDim.x * blockDim.x + x] += 1 + x + 100 * y + 10000 * z;
})", "mark"), dim3(7, 5, 3), dim3(4, 3, 2), hits.at);
  expect(hits.read(), [](size_t i) { return 1 + i % 28 + 100 * (i / 28 % 15) + 10000 * (i / 420); });
}

static void reduction_in_lds() {
  std::vector<int> values(8192);
  int expected = 0;
  for (size_t i = 0; i < values.size(); i++) values[i] = int(i * i % 1009), expected += values[i];
  Device<int> from(values), sums(size_t{32});
  launch(kernel(R"(
extern "C" __global__ void reduce(const int *from, int *sums) {
  __shared__ int part[256];
  part[threadIdx.x] = from[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  for (int half = 128; half; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (!threadIdx.x) sums[blockIdx.x] = part[0];
})", "reduce"), dim3(32), dim3(256), from.at, sums.at);
  int sum = 0;
  for (int part : sums.read()) sum += part;
  CHECK(sum == expected, "%d, expected %d", sum, expected);
}

static void dynamic_lds() {
  Device<unsigned> output(size_t{1024});
  launch_on(nullptr, kernel(R"(
extern "C" __global__ void reverse(unsigned *output) {
  extern __shared__ unsigned values[];
  values[threadIdx.x] = threadIdx.x * 3;
  __syncthreads();
  output[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
})", "reverse"), dim3(1), dim3(1024), 4096, output.at);
  expect(output.read(), [](size_t i) { return (1023 - i) * 3; });
}

static void atomics() {
  Device<unsigned> words(size_t{16});
  Device<unsigned long long> longs(size_t{4});
  Device<float> floats(size_t{2});
  HIP(hipMemset(words.at, 0, words.bytes()));
  HIP(hipMemset(longs.at, 0, longs.bytes()));
  HIP(hipMemset(floats.at, 0, floats.bytes()));
  launch(kernel(R"(
extern "C" __global__ void count(unsigned *words, unsigned long long *longs, float *floats) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(words, 1u);
  atomicMax(words + 1, i);
  atomicOr(words + 2, 1u << (i % 32));
  atomicXor(words + 3, i);
  for (unsigned old = words[4], seen; ; old = seen)
    if ((seen = atomicCAS(words + 4, old, old + 3)) == old) break;
  atomicInc(words + 5, 99u);
  atomicAdd(longs, (unsigned long long)i << 20);
  atomicMin(longs + 1, 0ull);
  atomicAdd(floats, 0.5f);
  unsafeAtomicAdd(floats + 1, 1.0f);
})", "count"), dim3(40), dim3(64), words.at, longs.at, floats.at);
  unsigned folded = 0;
  unsigned long long sum = 0;
  for (unsigned i = 0; i < 2560; i++) folded ^= i, sum += static_cast<unsigned long long>(i) << 20;
  std::vector<unsigned> got = words.read();
  CHECK(got[0] == 2560 && got[1] == 2559 && got[2] == ~0u && got[3] == folded && got[4] == 7680 && got[5] == 2560 % 100,
        "%u %u %#x %#x %u %u", got[0], got[1], got[2], got[3], got[4], got[5]);
  CHECK(longs.read()[0] == sum && floats.read()[0] == 1280 && floats.read()[1] == 2560, "64-bit or float sums");
}

static void histogram() {
  std::vector<uint8_t> values(40000);
  std::vector<unsigned> expected(256);
  for (size_t i = 0; i < values.size(); i++) values[i] = uint8_t(i * i >> 3), expected[values[i]]++;
  Device<uint8_t> from(values);
  Device<unsigned> counts(size_t{256});
  HIP(hipMemset(counts.at, 0, counts.bytes()));
  launch(kernel(R"(
extern "C" __global__ void histogram(const unsigned char *from, unsigned *counts, unsigned count) {
  __shared__ unsigned part[256];
  part[threadIdx.x] = 0;
  __syncthreads();
  for (unsigned i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) atomicAdd(part + from[i], 1u);
  __syncthreads();
  atomicAdd(counts + threadIdx.x, part[threadIdx.x]);
})", "histogram"), dim3(8), dim3(256), from.at, counts.at, unsigned(values.size()));
  CHECK(counts.read() == expected, "other counts");
}

static void matrix_product_in_tiles() {
  enum { N = 64 };
  std::vector<float> a(N * N), b(N * N);
  for (int i = 0; i < N * N; i++) a[size_t(i)] = float(i % 7 - 3), b[size_t(i)] = float(i % 5 - 2);
  Device<float> x(a), y(b), c(size_t{N * N});
  launch(kernel(R"(
extern "C" __global__ void multiply(const float *a, const float *b, float *c, int n) {
  __shared__ float left[16][16], right[16][16];
  int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < n; tile += 16) {
    left[threadIdx.y][threadIdx.x] = a[row * n + tile + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(tile + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < 16; k++) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
})", "multiply"), dim3(4, 4), dim3(16, 16), x.at, y.at, c.at, int(N));
  expect(c.read(), [&](size_t i) {
    float sum = 0;
    for (size_t k = 0; k < N; k++) sum += a[i / N * N + k] * b[k * N + i % N];
    return sum;
  });
}

static void private_arrays() {
  Device<int> output(size_t{512});
  launch(kernel(R"(
extern "C" __global__ void permute(int *output) {
  int values[200];
  for (int i = 0; i < 200; i++) values[(i * 77 + threadIdx.x) % 200] = i * 3 + (int)threadIdx.x;
  int at = (int)(threadIdx.x * 13 + blockIdx.x) % 200, sum = 0;
  for (int i = 0; i < 10; i++) sum += values[(at + i * at) % 200];
  output[blockIdx.x * blockDim.x + threadIdx.x] = sum;
})", "permute"), dim3(4), dim3(128), output.at);
  expect(output.read(), [](size_t n) {
    int thread = int(n % 128), at = (thread * 13 + int(n / 128)) % 200, sum = 0, values[200];
    for (int i = 0; i < 200; i++) values[(i * 77 + thread) % 200] = i * 3 + thread;
    for (int i = 0; i < 10; i++) sum += values[(at + i * at) % 200];
    return sum;
  });
}

static void recursion_and_function_pointers() {
  Device<unsigned> output(size_t{64});
  launch(kernel(R"(
__device__ __attribute__((noinline)) unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __attribute__((noinline)) unsigned twice(unsigned n) { return 2 * n; }
extern "C" __global__ void call(unsigned *output) {
  unsigned (*function)(unsigned) = threadIdx.x % 2 ? fibonacci : twice;
  output[threadIdx.x] = function(threadIdx.x % 10);
})", "call"), dim3(1), dim3(64), output.at);
  expect(output.read(), [](size_t i) {
    static const unsigned numbers[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34};
    return i % 2 ? numbers[i % 10] : 2 * unsigned(i % 10);
  });
}

static void lanes() {
  Device<unsigned> output(size_t{128});
  launch(kernel(R"(
extern "C" __global__ void lanes(unsigned *output) {
  unsigned lane = threadIdx.x % warpSize, sum = lane;
  for (int step = 1; step < warpSize; step *= 2) sum += __shfl_xor(sum, step);
  unsigned before = __shfl_up(lane, 1), odd = __popcll(__ballot(lane % 2));
  output[threadIdx.x] = sum * 1000 + before * 100 + odd;
})", "lanes"), dim3(1), dim3(128), output.at);
  hipDeviceProp_t properties;
  HIP(hipGetDeviceProperties(&properties, 0));
  unsigned size = unsigned(properties.warpSize);
  expect(output.read(), [&](size_t i) {
    unsigned lane = unsigned(i) % size;
    return size * (size - 1) / 2 * 1000 + (lane ? lane - 1 : 0) * 100 + size / 2;
  });
}

static void double_precision() {
  Device<double> output(size_t{256});
  launch(kernel(R"(
extern "C" __global__ void doubles(double *output) {
  double x = threadIdx.x + 1;
  output[threadIdx.x] = fma(x, 1.0 / 3.0, sqrt(x * x)) - x / 7.0;
})", "doubles"), dim3(1), dim3(256), output.at);
  expect(output.read(), [](size_t i) {
    double x = double(i + 1);
    return std::fma(x, 1.0 / 3.0, std::sqrt(x * x)) - x / 7.0;
  });
}

static void half_precision() {
  Device<float> output(size_t{256});
  launch(kernel(R"(
extern "C" __global__ void halves(float *output) {
  _Float16 x = (_Float16)(int)threadIdx.x, y = (_Float16)0.25f;
  output[threadIdx.x] = (float)(x * y + (_Float16)1.0f);
})", "halves"), dim3(1), dim3(256), output.at);
  expect(output.read(), [](size_t i) { return float(i) * 0.25f + 1; });
}

static void elementary_functions() {
  Device<float> output(size_t{512});
  launch(kernel(R"(
extern "C" __global__ void functions(float *output) {
  float x = threadIdx.x * 0.03f - 3.0f;
  output[threadIdx.x] = expf(x);
  output[256 + threadIdx.x] = sinf(x) + logf(x * x + 1.0f) + powf(fabsf(x) + 0.5f, 1.5f) + tanhf(x);
})", "functions"), dim3(1), dim3(256), output.at);
  std::vector<float> got = output.read();
  for (int i = 0; i < 256; i++) {
    double x = double(float(i) * 0.03f - 3.0f);
    double sum = std::sin(x) + std::log(x * x + 1) + std::pow(std::fabs(x) + 0.5, 1.5) + std::tanh(x);
    CHECK(std::fabs(double(got[size_t(i)]) / std::exp(x) - 1) < 1e-6, "exp(%g) is %g", x, double(got[size_t(i)]));
    CHECK(std::fabs(double(got[256 + size_t(i)]) - sum) < 1e-5, "functions of %g are %g", x, double(got[256 + size_t(i)]));
  }
}

static void variables_of_the_module() {
  hipModule_t module;
  hipFunction_t function = kernel(R"(
__constant__ int factors[4];
__device__ int total = 5;
extern "C" __global__ void use(int *output) {
  output[threadIdx.x] = factors[threadIdx.x % 4] * (int)threadIdx.x;
  if (!threadIdx.x) total += factors[3];
})", "use", &module);
  hipDeviceptr_t factors, total;
  size_t size = 0;
  HIP(hipModuleGetGlobal(&factors, &size, module, "factors"));
  CHECK(size == 16, "factors has %zu bytes", size);
  HIP(hipModuleGetGlobal(&total, &size, module, "total"));
  const int values[] = {2, 3, 5, 7};
  HIP(hipMemcpyHtoD(factors, const_cast<int *>(values), sizeof values));
  Device<int> output(size_t{32});
  launch(function, dim3(1), dim3(32), output.at);
  expect(output.read(), [&](size_t i) { return values[i % 4] * int(i); });
  int sum = 0;
  HIP(hipMemcpyDtoH(&sum, total, 4));
  CHECK(sum == 12, "total is %d", sum);
  HIP(hipModuleUnload(module));
}

static void large_arguments() {
  struct Table { int values[200]; } table;
  for (int i = 0; i < 200; i++) table.values[i] = i * i;
  Device<int> output(size_t{200});
  launch(kernel(R"(
struct Table { int values[200]; };
extern "C" __global__ void copy(Table table, int *output, char offset) { output[threadIdx.x] = table.values[threadIdx.x] + offset; }
)", "copy"), dim3(1), dim3(200), table, output.at, char(3));
  expect(output.read(), [](size_t i) { return i * i + 3; });
}

static void printf_of_a_kernel() {
  launch(kernel(R"(
extern "C" __global__ void say(int value, double real, const char *unused) {
  if (threadIdx.x % 32 == 5) printf("kernel %d of %u: %d %.2f %s\n", (int)blockIdx.x, threadIdx.x, value, real, "text");
})", "say"), dim3(2), dim3(64), 42, 2.5, static_cast<const char *>(nullptr));
  HIP(hipDeviceSynchronize());
}

static void matrix_instruction() {
  std::vector<uint16_t> a(256), b(256);
  for (size_t i = 0; i < 256; i++) a[i] = i % 17 == 0 ? 0x3C00 : 0, b[i] = uint16_t(0x3C00 + (i & 7) * 0x80);  // 1; 1 to 1.875
  Device<uint16_t> x(a), y(b);
  Device<float> c(size_t{256});
  launch(kernel(R"(
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef float float8 __attribute__((ext_vector_type(8)));
extern "C" __global__ void wmma(const _Float16 *a, const _Float16 *b, float *c) {
  int lane = threadIdx.x, half = lane / 16;
  half8 left, right;
  for (int k = 0; k < 8; k++) left[k] = a[lane % 16 * 16 + half * 8 + k], right[k] = b[(half * 8 + k) * 16 + lane % 16];
  float8 sum = {};
  sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(left, right, sum);
  for (int i = 0; i < 8; i++) c[(half * 8 + i) * 16 + lane % 16] = sum[i];
})", "wmma"), dim3(1), dim3(32), x.at, y.at, c.at);
  expect(c.read(), [](size_t i) { return 1 + float(i & 7) / 8; });  // the unit matrix times b
}

static void occupancy() {
  hipFunction_t function = kernel(R"(extern "C" __global__ void nothing(int *x) { if (x) *x = 1; })", "nothing");
  int groups = 0, smallest = 0, best = 0;
  HIP(hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&groups, function, 256, 0));
  HIP(hipModuleOccupancyMaxPotentialBlockSize(&smallest, &best, function, 0, 0));
  CHECK(groups > 0 && smallest > 0 && best > 0, "%d groups, %d of %d", groups, smallest, best);
}

static void a_thousand_launches() {
  Device<unsigned> counter(size_t{1});
  HIP(hipMemset(counter.at, 0, 4));
  hipFunction_t function = kernel(R"(extern "C" __global__ void count(unsigned *x) { if (!threadIdx.x) *x = *x * 3 + 1; })", "count");
  unsigned expected = 0;
  for (int i = 0; i < 1000; i++) launch(function, dim3(1), dim3(32), counter.at), expected = expected * 3 + 1;
  CHECK(counter.read()[0] == expected, "%#x, expected %#x", counter.read()[0], expected);
}

const HipProgram kernel_programs[] = {
    {"vector_sum", vector_sum},
    {"grid_of_three_dimensions", grid_of_three_dimensions},
    {"reduction_in_lds", reduction_in_lds},
    {"dynamic_lds", dynamic_lds},
    {"atomics", atomics},
    {"histogram", histogram},
    {"matrix_product_in_tiles", matrix_product_in_tiles},
    {"private_arrays", private_arrays},
    {"recursion_and_function_pointers", recursion_and_function_pointers},
    {"lanes", lanes},
    {"double_precision", double_precision},
    {"half_precision", half_precision},
    {"elementary_functions", elementary_functions},
    {"variables_of_the_module", variables_of_the_module},
    {"large_arguments", large_arguments},
    {"printf_of_a_kernel", printf_of_a_kernel},
    {"matrix_instruction", matrix_instruction},
    {"occupancy", occupancy},
    {"a_thousand_launches", a_thousand_launches},
    {},
};
