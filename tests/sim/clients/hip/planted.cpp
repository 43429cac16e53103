// Programs with an error each, which the device must name: `--planted` lists them.
#include "hip_programs.h"

static const char *source = R"(
extern "C" __global__ void store_byte(unsigned char *to, unsigned long at) { to[at] = 7; }
extern "C" __global__ void store_all(float *to) { to[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
extern "C" __global__ void load_float(const float *from, unsigned long at, float *to) { *to = from[at]; }
)";

static void overrun_by_one_byte() {
  Device<uint8_t> memory(100);
  launch(kernel(source, "store_byte"), dim3(1), dim3(1), memory.at, 100ul);
  HIP(hipDeviceSynchronize());
}

static void overrun_of_whole_pages() {
  Device<float> memory(4096);
  launch(kernel(source, "store_all"), dim3(65), dim3(64), memory.at);
  HIP(hipDeviceSynchronize());
}

static void load_past_the_end() {
  Device<float> from(std::vector<float>(1000, 2.0f)), to(1);
  launch(kernel(source, "load_float"), dim3(1), dim3(1), from.at, 1000ul, to.at);
  HIP(hipDeviceSynchronize());
}

static void overrun_between_allocations() {
  Device<uint8_t> first(64), second(64);
  launch(kernel(source, "store_byte"), dim3(1), dim3(1), first.at, 64ul);
  HIP(hipDeviceSynchronize());
}

const HipProgram planted_programs[] = {
    {"overrun_by_one_byte", overrun_by_one_byte},
    {"overrun_of_whole_pages", overrun_of_whole_pages},
    {"load_past_the_end", load_past_the_end},
    {"overrun_between_allocations", overrun_between_allocations},
    {},
};
