// Small HIP programs: each is a function that returns, or CHECK ends the process. Kernels are compiled by hipRTC.
#pragma once
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define CHECK(what, ...)                                          \
  do {                                                            \
    if (!(what)) {                                                \
      std::printf("%s:%d: ", __FILE__, __LINE__);                 \
      std::printf(__VA_ARGS__), std::puts(""), std::fflush(stdout); \
      std::_Exit(1);                                              \
    }                                                             \
  } while (0)
#define HIP(call)                                                                             \
  do {                                                                                        \
    hipError_t code_ = (call);                                                                \
    CHECK(code_ == hipSuccess, "%s: %s", #call, hipGetErrorString(code_));                    \
  } while (0)

struct HipProgram {
  const char *name;
  void (*body)();
  const char *rule = nullptr;  // of a planted error: the finding
};
extern const HipProgram memory_programs[], kernel_programs[], stream_programs[], hsa_programs[], planted_programs[];

// The code object of `source` for the chip `target` (gfx1201). Ends the process if it does not compile.
std::vector<char> compile(const char *source, const std::string &target);

// The kernel `name` of the module compiled from `source`. Ends the process if it does not compile.
hipFunction_t kernel(const char *source, const char *name, hipModule_t *module = nullptr);

template <class... Arguments>
void launch_on(hipStream_t stream, hipFunction_t function, dim3 groups, dim3 threads, unsigned lds, Arguments... values) {
  void *pointers[] = {static_cast<void *>(&values)..., nullptr};
  HIP(hipModuleLaunchKernel(function, groups.x, groups.y, groups.z, threads.x, threads.y, threads.z, lds, stream, pointers, nullptr));
}
template <class... Arguments>
void launch(hipFunction_t function, dim3 groups, dim3 threads, Arguments... values) {
  launch_on(nullptr, function, groups, threads, 0, values...);
}

// Memory of the device that is freed with the object.
template <class Element>
struct Device {
  Element *at = nullptr;
  size_t count;
  explicit Device(size_t elements) : count(elements) { HIP(hipMalloc(reinterpret_cast<void **>(&at), bytes())); }
  explicit Device(const std::vector<Element> &values) : Device(values.size()) {
    HIP(hipMemcpy(at, values.data(), bytes(), hipMemcpyHostToDevice));
  }
  Device(const Device &) = delete;
  ~Device() { HIP(hipFree(at)); }
  size_t bytes() const { return count * sizeof(Element); }
  std::vector<Element> read() const {
    std::vector<Element> values(count);
    HIP(hipMemcpy(values.data(), at, bytes(), hipMemcpyDeviceToHost));
    return values;
  }
};

template <class Element, class Expected>
void expect(const std::vector<Element> &values, Expected expected) {
  for (size_t i = 0; i < values.size(); i++)
    CHECK(values[i] == static_cast<Element>(expected(i)), "element %zu is %g, expected %g", i, double(values[i]), double(expected(i)));
}
