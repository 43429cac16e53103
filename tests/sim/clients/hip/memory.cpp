// Copies, fills, kinds of memory.
#include "hip_programs.h"

static const char *COPY = R"(
extern "C" __global__ void scale(const float *from, float *to, float by, unsigned count) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i] * by;
})";

static std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; i++) values[i] = float(i % 4093) - 17;
  return values;
}

static void copies_of_any_size() {
  for (size_t bytes : {1, 3, 63, 64, 4095, 4096, 65537, 1 << 20, (5 << 20) + 13}) {
    std::vector<uint8_t> values(bytes);
    for (size_t i = 0; i < bytes; i++) values[i] = uint8_t(i * 31 + (i >> 8));
    Device<uint8_t> memory(values);
    CHECK(memory.read() == values, "%zu bytes changed", bytes);
  }
}

static void copies_at_odd_offsets() {
  std::vector<uint8_t> values(10000);
  for (size_t i = 0; i < values.size(); i++) values[i] = uint8_t(i * 7);
  Device<uint8_t> memory(16384);
  HIP(hipMemset(memory.at, 0, memory.bytes()));
  HIP(hipMemcpy(memory.at + 4093, values.data() + 5, 5001, hipMemcpyHostToDevice));
  expect(memory.read(), [&](size_t i) { return i >= 4093 && i < 4093 + 5001 ? values[i - 4093 + 5] : 0; });
}

static void copies_on_the_device() {
  std::vector<float> values = ramp(100000);
  Device<float> from(values), to(values.size());
  HIP(hipMemcpy(to.at, from.at, from.bytes(), hipMemcpyDeviceToDevice));
  CHECK(to.read() == values, "the copy differs");
}

static void fills() {
  Device<uint32_t> memory(5000);
  HIP(hipMemset(memory.at, 0xA5, memory.bytes()));
  HIP(hipMemsetD32(memory.at + 100, 0x12345678, 1000));
  HIP(hipMemsetD16(memory.at + 2000, 0x4321, 3));
  HIP(hipMemsetD8(memory.at + 3000, 0x77, 2));
  expect(memory.read(), [](size_t i) {
    if (i >= 100 && i < 1100) return 0x12345678u;
    return i == 2000 ? 0x43214321u : i == 2001 ? 0xA5A54321u : i == 3000 ? 0xA5A57777u : 0xA5A5A5A5u;
  });
}

static void copies_of_rectangles() {
  enum { WIDTH = 100, HEIGHT = 50 };
  std::vector<float> values = ramp(WIDTH * HEIGHT), back(20 * 10);
  float *memory = nullptr;
  size_t pitch = 0;
  HIP(hipMallocPitch(reinterpret_cast<void **>(&memory), &pitch, WIDTH * 4, HEIGHT));
  HIP(hipMemcpy2D(memory, pitch, values.data(), WIDTH * 4, WIDTH * 4, HEIGHT, hipMemcpyHostToDevice));
  HIP(hipMemcpy2D(back.data(), 20 * 4, reinterpret_cast<char *>(memory) + 7 * pitch + 12, pitch, 20 * 4, 10, hipMemcpyDeviceToHost));
  expect(back, [&](size_t i) { return values[(7 + i / 20) * WIDTH + 3 + i % 20]; });
  HIP(hipFree(memory));
}

static void rectangle_fill() {
  std::vector<uint8_t> values(64 * 64);
  Device<uint8_t> memory(values.size());
  HIP(hipMemset(memory.at, 0, memory.bytes()));
  HIP(hipMemset2D(memory.at + 64 * 3 + 5, 64, 0x3C, 17, 9));
  expect(memory.read(), [](size_t i) { return i / 64 >= 3 && i / 64 < 12 && i % 64 >= 5 && i % 64 < 22 ? 0x3C : 0; });
}

static void pinned_host_memory() {
  float *from = nullptr, *to = nullptr;
  HIP(hipHostMalloc(reinterpret_cast<void **>(&from), 40000, hipHostMallocDefault));
  HIP(hipHostMalloc(reinterpret_cast<void **>(&to), 40000, hipHostMallocDefault));
  for (int i = 0; i < 10000; i++) from[i] = float(i), to[i] = -1;
  launch(kernel(COPY, "scale"), dim3(40), dim3(256), from, to, 3.0f, 10000u);
  HIP(hipDeviceSynchronize());
  for (int i = 0; i < 10000; i++) CHECK(to[i] == 3.0f * float(i), "element %d is %g", i, to[i]);
  HIP(hipHostFree(from));
  HIP(hipHostFree(to));
}

static void registered_host_memory() {
  std::vector<float> values = ramp(20000);
  float *device = nullptr;
  HIP(hipHostRegister(values.data(), values.size() * 4, hipHostRegisterDefault));
  HIP(hipHostGetDevicePointer(reinterpret_cast<void **>(&device), values.data(), 0));
  launch(kernel(COPY, "scale"), dim3(79), dim3(256), device, device, 2.0f, 20000u);
  HIP(hipDeviceSynchronize());
  HIP(hipHostUnregister(values.data()));
  std::vector<float> expected = ramp(20000);
  expect(values, [&](size_t i) { return 2 * expected[i]; });
}

static void coherent_host_memory_is_seen_by_a_running_kernel() {
  volatile unsigned *flags = nullptr;
  void *memory = nullptr;
  HIP(hipHostMalloc(&memory, 4096, hipHostMallocCoherent));
  flags = static_cast<unsigned *>(memory);
  flags[0] = flags[32] = 0;
  hipFunction_t function = kernel(R"(
extern "C" __global__ void answer(unsigned *flags) {
  for (unsigned i = 1; i <= 3; i++) {
    while (__hip_atomic_load(flags, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM) != i) __builtin_amdgcn_s_sleep(1);
    __hip_atomic_store(flags + 32, i * 10, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
  }
})", "answer");
  launch(function, dim3(1), dim3(1), static_cast<unsigned *>(memory));
  for (unsigned i = 1; i <= 3; i++) {
    flags[0] = i;
    while (flags[32] != i * 10) {}
  }
  HIP(hipDeviceSynchronize());
  HIP(hipHostFree(memory));
}

static void allocations_of_a_stream() {
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  std::vector<float> values = ramp(10000), back(10000);
  for (int round = 0; round < 5; round++) {
    float *from = nullptr, *to = nullptr;
    HIP(hipMallocAsync(reinterpret_cast<void **>(&from), 40000, stream));
    HIP(hipMallocAsync(reinterpret_cast<void **>(&to), 40000, stream));
    HIP(hipMemcpyAsync(from, values.data(), 40000, hipMemcpyHostToDevice, stream));
    launch_on(stream, kernel(COPY, "scale"), dim3(40), dim3(256), 0, from, to, 0.5f, 10000u);
    HIP(hipMemcpyAsync(back.data(), to, 40000, hipMemcpyDeviceToHost, stream));
    HIP(hipFreeAsync(from, stream));
    HIP(hipFreeAsync(to, stream));
    HIP(hipStreamSynchronize(stream));
    expect(back, [&](size_t i) { return 0.5f * values[i]; });
  }
  HIP(hipStreamDestroy(stream));
}

static void many_allocations() {
  std::vector<uint32_t *> all;
  for (uint32_t i = 0; i < 300; i++) {
    uint32_t *memory = nullptr;
    HIP(hipMalloc(reinterpret_cast<void **>(&memory), 4 + i * 100));
    HIP(hipMemsetD32(memory, int(i), 1));
    all.push_back(memory);
  }
  for (uint32_t i = 0; i < 300; i++) {
    uint32_t value = 0;
    HIP(hipMemcpy(&value, all[i], 4, hipMemcpyDeviceToHost));
    CHECK(value == i, "allocation %u holds %u", i, value);
    HIP(hipFree(all[i]));
  }
}

static void memory_information() {
  size_t available = 0, total = 0, later = 0;
  HIP(hipMemGetInfo(&available, &total));
  Device<uint8_t> memory(64 << 20);
  HIP(hipMemGetInfo(&later, &total));
  CHECK(available <= total && available - later >= 64 << 20, "%zu of %zu, then %zu", available, total, later);
  hipPointerAttribute_t attributes;
  HIP(hipPointerGetAttributes(&attributes, memory.at));
  CHECK(attributes.type == hipMemoryTypeDevice && attributes.devicePointer == memory.at, "attributes of another pointer");
  void *base = nullptr;
  size_t size = 0;
  HIP(hipMemGetAddressRange(&base, &size, memory.at + 1000));
  CHECK(base == memory.at && size == memory.bytes(), "range %p of %zu bytes", base, size);
}

const HipProgram memory_programs[] = {
    {"copies_of_any_size", copies_of_any_size},
    {"copies_at_odd_offsets", copies_at_odd_offsets},
    {"copies_on_the_device", copies_on_the_device},
    {"fills", fills},
    {"copies_of_rectangles", copies_of_rectangles},
    {"rectangle_fill", rectangle_fill},
    {"pinned_host_memory", pinned_host_memory},
    {"registered_host_memory", registered_host_memory},
    {"coherent_host_memory", coherent_host_memory_is_seen_by_a_running_kernel},
    {"allocations_of_a_stream", allocations_of_a_stream},
    {"many_allocations", many_allocations},
    {"memory_information", memory_information},
    {},
};
