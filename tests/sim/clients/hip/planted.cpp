// Programs with an error each, which the device must find: `--planted` lists them with the expected rule.
#include "hip_programs.h"

static const char *source = R"(
extern "C" __global__ void store_byte(unsigned char *to, unsigned long at) { to[at] = 7; }
extern "C" __global__ void store_all(float *to) { to[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
extern "C" __global__ void load_float(const float *from, unsigned long at, float *to) { *to = from[at]; }
extern "C" __global__ void store_word(unsigned char *to, unsigned long at) { *(unsigned *)(to + at) = 7; }
extern "C" __global__ void store_double(double *to, unsigned long at) { to[at] = 0.5; }
extern "C" __global__ void store_vector(float4 *to) { to[threadIdx.x] = make_float4(1, 2, 3, 4); }
extern "C" __global__ void load_vector(const float4 *from, float *to) { float4 v = from[threadIdx.x]; to[threadIdx.x] = v.x + v.y + v.z + v.w; }
extern "C" __global__ void add_one(unsigned *to, unsigned long at) { atomicAdd(to + at, 1u); }
extern "C" __global__ void copy(const unsigned char *from, unsigned char *to, unsigned count) {
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}
extern "C" __global__ void gather(const float *from, const int *index, float *to) { to[threadIdx.x] = from[index[threadIdx.x]]; }
extern "C" __global__ void stencil(const float *from, float *to, int count) {
  int i = threadIdx.x;
  if (i < count) to[i] = from[i] + from[i + 1];
}
extern "C" __global__ void transpose(const float *from, float *to, int rows, int columns) {
  int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
  to[column * rows + row] = from[row * columns + column];
}
struct Particle { float x, y, z; int kind; };
extern "C" __global__ void set_kind(Particle *all, int last) { if ((int)threadIdx.x <= last) all[threadIdx.x].kind = 1; }
__device__ __attribute__((noinline)) void put(float *to, int at) { to[at] = 3; }
extern "C" __global__ void store_in_a_call(float *to, int at) { put(to, at); }
extern "C" __global__ void compare_and_swap(unsigned long long *to, unsigned long at) { atomicCAS(to + at, 0ull, 1ull); }

extern "C" __global__ void same_word(unsigned *to) { *to = threadIdx.x + 1000 * blockIdx.x; }
extern "C" __global__ void count_without_atomics(unsigned *to) { if (threadIdx.x % 32 == 0) to[0]++; }
extern "C" __global__ void neighbours(unsigned *to) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, count = gridDim.x * blockDim.x;
  if (threadIdx.x % 32 == 0) to[i] = to[(i + blockDim.x) % count] + 1;
}
extern "C" __global__ void lds_without_barrier(unsigned *to) {
  __shared__ unsigned tile[256];
  tile[threadIdx.x] = 0;
  __syncthreads();
  tile[threadIdx.x] = threadIdx.x;
  to[threadIdx.x] = tile[255 - threadIdx.x];
}
extern "C" __global__ void lds_reduction(unsigned *to) {
  __shared__ unsigned part[256];
  part[threadIdx.x] = threadIdx.x;
  __syncthreads();
  for (unsigned half = 128; half; half /= 2)
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  if (!threadIdx.x) *to = part[0];
}
extern "C" __global__ void lds_histogram(unsigned *to) {
  __shared__ unsigned bins[4];
  if (threadIdx.x < 4) bins[threadIdx.x] = 0;
  __syncthreads();
  if (threadIdx.x % 32 == 0) bins[0]++;
  __syncthreads();
  if (threadIdx.x < 4) to[threadIdx.x] = bins[threadIdx.x];
}
extern "C" __global__ void lds_used_again(unsigned *to) {
  __shared__ unsigned tile[256];
  for (unsigned round = 0; round < 2; round++) {
    tile[threadIdx.x] = threadIdx.x + round;
    __syncthreads();
    to[256 * round + threadIdx.x] = tile[255 - threadIdx.x];  // no barrier before the next round's store
  }
}
extern "C" __global__ void last_one_sums(unsigned *parts, unsigned *ticket, unsigned *sum) {
  if (threadIdx.x) return;
  parts[blockIdx.x] = blockIdx.x;
  if (atomicAdd(ticket, 1u) != gridDim.x - 1) return;  // without __threadfence before it
  unsigned all = 0;
  for (unsigned i = 0; i < gridDim.x; i++) all += parts[i];
  *sum = all;
}
extern "C" __global__ void fill_words(unsigned *to, unsigned value, unsigned count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) to[i] = value;
}
extern "C" __global__ void add_words(const unsigned *from, unsigned *to, unsigned count) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) to[i] = from[i] + 1;
}
)";

static hipFunction_t named(const char *name) { return kernel(source, name); }
static void finish() { HIP(hipDeviceSynchronize()); }

// --- out of bounds

static void overrun_by_one_byte() {
  Device<uint8_t> memory(100);
  launch(named("store_byte"), dim3(1), dim3(1), memory.at, 100ul);
  finish();
}

static void overrun_of_whole_pages() {
  Device<float> memory(4096);
  launch(named("store_all"), dim3(65), dim3(64), memory.at);
  finish();
}

static void load_past_the_end() {
  Device<float> from(std::vector<float>(1000, 2.0f)), to(1);
  launch(named("load_float"), dim3(1), dim3(1), from.at, 1000ul, to.at);
  finish();
}

static void overrun_between_allocations() {
  Device<uint8_t> first(64), second(64);
  launch(named("store_byte"), dim3(1), dim3(1), first.at, 64ul);
  finish();
}

static void word_across_the_end() {
  Device<uint8_t> memory(102);
  launch(named("store_word"), dim3(1), dim3(1), memory.at, 100ul);
  finish();
}

static void double_past_the_end() {
  Device<double> memory(33);
  launch(named("store_double"), dim3(1), dim3(1), memory.at, 33ul);
  finish();
}

static void vector_across_the_end() {
  Device<float> memory(4 * 32 + 2);
  launch(named("store_vector"), dim3(1), dim3(33), memory.at);
  finish();
}

static void vector_load_across_the_end() {
  Device<float> from(std::vector<float>(4 * 32 + 2, 1.0f)), to(64);
  launch(named("load_vector"), dim3(1), dim3(33), from.at, to.at);
  finish();
}

static void atomic_past_the_end() {
  Device<unsigned> memory(std::vector<unsigned>(10, 0));
  launch(named("add_one"), dim3(1), dim3(32), memory.at, 10ul);
  finish();
}

static void swap_past_the_end() {
  Device<unsigned long long> memory(std::vector<unsigned long long>(10, 0));
  launch(named("compare_and_swap"), dim3(1), dim3(1), memory.at, 10ul);
  finish();
}

static void copy_of_one_byte_too_many() {
  Device<uint8_t> from(std::vector<uint8_t>(200, 1)), to(199);
  launch(named("copy"), dim3(1), dim3(64), from.at, to.at, 200u);
  finish();
}

static void copy_from_too_short_a_source() {
  Device<uint8_t> from(std::vector<uint8_t>(199, 1)), to(200);
  launch(named("copy"), dim3(1), dim3(64), from.at, to.at, 200u);
  finish();
}

static void wrong_index_of_a_gather() {
  std::vector<int> index(64);
  for (int i = 0; i < 64; i++) index[i] = i == 17 ? 64 : 63 - i;
  Device<float> from(std::vector<float>(64, 1.0f)), to(64);
  Device<int> indices(index);
  launch(named("gather"), dim3(1), dim3(64), from.at, indices.at, to.at);
  finish();
}

static void stencil_at_the_border() {
  Device<float> from(std::vector<float>(64, 1.0f)), to(64);
  launch(named("stencil"), dim3(1), dim3(64), from.at, to.at, 64);
  finish();
}

static void transpose_of_a_partial_tile() {
  Device<float> from(std::vector<float>(24 * 20, 1.0f)), to(24 * 20);
  launch(named("transpose"), dim3(3, 3), dim3(8, 8), from.at, to.at, 24, 20);
  finish();
}

static void member_of_one_struct_too_many() {
  Device<float> memory(4 * 16);
  launch(named("set_kind"), dim3(1), dim3(32), memory.at, 16);
  finish();
}

static void overrun_in_a_called_function() {
  Device<float> memory(77);
  launch(named("store_in_a_call"), dim3(1), dim3(1), memory.at, 77);
  finish();
}

static void overrun_of_fine_grained_memory() {
  uint8_t *memory = nullptr;
  HIP(hipExtMallocWithFlags(reinterpret_cast<void **>(&memory), 50, hipDeviceMallocFinegrained));
  launch(named("store_byte"), dim3(1), dim3(1), memory, 50ul);
  finish();
  HIP(hipFree(memory));
}

static void overrun_on_another_stream() {
  Device<float> memory(100);
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  launch_on(stream, named("store_all"), dim3(1), dim3(101), 0, memory.at);
  finish();
  HIP(hipStreamDestroy(stream));
}

static void overrun_in_a_graph() {
  Device<float> memory(100);
  hipStream_t stream;
  hipGraph_t graph;
  hipGraphExec_t ready;
  hipFunction_t function = named("store_all");
  HIP(hipStreamCreate(&stream));
  HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  launch_on(stream, function, dim3(1), dim3(101), 0, memory.at);
  HIP(hipStreamEndCapture(stream, &graph));
  HIP(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0));
  HIP(hipGraphLaunch(ready, stream));
  HIP(hipStreamSynchronize(stream));
  HIP(hipGraphExecDestroy(ready));
  HIP(hipGraphDestroy(graph));
  HIP(hipStreamDestroy(stream));
}

// --- races of waves

static void two_groups_store_one_word() {
  Device<unsigned> memory(1);
  launch(named("same_word"), dim3(8), dim3(1), memory.at);
  finish();
}

static void waves_count_without_atomics() {
  Device<unsigned> memory(std::vector<unsigned>(1, 0));
  launch(named("count_without_atomics"), dim3(1), dim3(256), memory.at);
  finish();
}

static void groups_count_without_atomics() {
  Device<unsigned> memory(std::vector<unsigned>(1, 0));
  launch(named("count_without_atomics"), dim3(8), dim3(32), memory.at);
  finish();
}

static void groups_read_their_neighbours() {
  Device<unsigned> memory(std::vector<unsigned>(8 * 32, 0));
  launch(named("neighbours"), dim3(8), dim3(32), memory.at);
  finish();
}

static void lds_exchange_without_a_barrier() {
  Device<unsigned> memory(256);
  launch(named("lds_without_barrier"), dim3(1), dim3(256), memory.at);
  finish();
}

static void reduction_without_barriers() {
  Device<unsigned> memory(1);
  launch(named("lds_reduction"), dim3(1), dim3(256), memory.at);
  finish();
}

static void lds_histogram_without_atomics() {
  Device<unsigned> memory(4);
  launch(named("lds_histogram"), dim3(1), dim3(256), memory.at);
  finish();
}

static void lds_tile_overwritten_too_early() {
  Device<unsigned> memory(512);
  launch(named("lds_used_again"), dim3(1), dim3(256), memory.at);
  finish();
}

static void last_group_without_a_fence() {
  Device<unsigned> parts(16), ticket(std::vector<unsigned>(1, 0)), sum(1);
  launch(named("last_one_sums"), dim3(16), dim3(32), parts.at, ticket.at, sum.at);
  finish();
}

// --- races of streams: each has a queue of its own

struct Streams {
  hipStream_t first, second;
  Streams() {
    for (hipStream_t *stream : {&first, &second}) HIP(hipStreamCreateWithFlags(stream, hipStreamNonBlocking));
  }
  ~Streams() {
    HIP(hipDeviceSynchronize());
    for (hipStream_t stream : {first, second}) HIP(hipStreamDestroy(stream));
  }
};
enum { MANY = 1 << 14 };

static void two_streams_write() {
  Device<unsigned> memory(MANY);
  hipFunction_t function = named("fill_words");
  Streams streams;
  launch_on(streams.first, function, dim3(16), dim3(64), 0, memory.at, 1u, unsigned(MANY));
  launch_on(streams.second, function, dim3(16), dim3(64), 0, memory.at, 2u, unsigned(MANY));
}

static void stream_reads_what_another_writes() {
  Device<unsigned> memory(std::vector<unsigned>(MANY, 0)), to(MANY);
  hipFunction_t fill = named("fill_words"), add = named("add_words");
  Streams streams;
  launch_on(streams.first, fill, dim3(16), dim3(64), 0, memory.at, 1u, unsigned(MANY));
  launch_on(streams.second, add, dim3(16), dim3(64), 0, memory.at, to.at, unsigned(MANY));
}

static void stream_writes_what_another_reads() {
  Device<unsigned> memory(std::vector<unsigned>(MANY, 0)), to(MANY);
  hipFunction_t fill = named("fill_words"), add = named("add_words");
  Streams streams;
  launch_on(streams.first, add, dim3(16), dim3(64), 0, memory.at, to.at, unsigned(MANY));
  launch_on(streams.second, fill, dim3(16), dim3(64), 0, memory.at, 1u, unsigned(MANY));
}

static void event_recorded_too_early() {
  Device<unsigned> memory(std::vector<unsigned>(MANY, 0)), to(MANY);
  hipFunction_t fill = named("fill_words"), add = named("add_words");
  hipEvent_t event;
  HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  {
    Streams streams;
    HIP(hipEventRecord(event, streams.first));  // before the launch that the other stream has to wait for
    launch_on(streams.first, fill, dim3(16), dim3(64), 0, memory.at, 1u, unsigned(MANY));
    HIP(hipStreamWaitEvent(streams.second, event, 0));
    launch_on(streams.second, add, dim3(16), dim3(64), 0, memory.at, to.at, unsigned(MANY));
  }
  HIP(hipEventDestroy(event));
}

static void overlapping_halves() {
  Device<unsigned> memory(MANY);
  hipFunction_t function = named("fill_words");
  Streams streams;
  launch_on(streams.first, function, dim3(16), dim3(64), 0, memory.at, 1u, unsigned(MANY / 2 + 1));
  launch_on(streams.second, function, dim3(16), dim3(64), 0, memory.at + MANY / 2, 2u, unsigned(MANY / 2));
}

#define PLANTED(name, rule) {#name, name, rule}
const HipProgram planted_programs[] = {
    PLANTED(overrun_by_one_byte, "out-of-bounds"),
    PLANTED(overrun_of_whole_pages, "out-of-bounds"),
    PLANTED(load_past_the_end, "out-of-bounds"),
    PLANTED(overrun_between_allocations, "out-of-bounds"),
    PLANTED(word_across_the_end, "out-of-bounds"),
    PLANTED(double_past_the_end, "out-of-bounds"),
    PLANTED(vector_across_the_end, "out-of-bounds"),
    PLANTED(vector_load_across_the_end, "out-of-bounds"),
    PLANTED(atomic_past_the_end, "out-of-bounds"),
    PLANTED(swap_past_the_end, "out-of-bounds"),
    PLANTED(copy_of_one_byte_too_many, "out-of-bounds"),
    PLANTED(copy_from_too_short_a_source, "out-of-bounds"),
    PLANTED(wrong_index_of_a_gather, "out-of-bounds"),
    PLANTED(stencil_at_the_border, "out-of-bounds"),
    PLANTED(transpose_of_a_partial_tile, "out-of-bounds"),
    PLANTED(member_of_one_struct_too_many, "out-of-bounds"),
    PLANTED(overrun_in_a_called_function, "out-of-bounds"),
    PLANTED(overrun_of_fine_grained_memory, "out-of-bounds"),
    PLANTED(overrun_on_another_stream, "out-of-bounds"),
    PLANTED(overrun_in_a_graph, "out-of-bounds"),
    PLANTED(two_groups_store_one_word, "race"),
    PLANTED(waves_count_without_atomics, "race"),
    PLANTED(groups_count_without_atomics, "race"),
    PLANTED(groups_read_their_neighbours, "race"),
    PLANTED(lds_exchange_without_a_barrier, "lds-race"),
    PLANTED(reduction_without_barriers, "lds-race"),
    PLANTED(lds_histogram_without_atomics, "lds-race"),
    PLANTED(lds_tile_overwritten_too_early, "lds-race"),
    PLANTED(last_group_without_a_fence, "race"),
    PLANTED(two_streams_write, "missing-barrier"),
    PLANTED(stream_reads_what_another_writes, "missing-barrier"),
    PLANTED(stream_writes_what_another_reads, "missing-barrier"),
    PLANTED(event_recorded_too_early, "missing-barrier"),
    PLANTED(overlapping_halves, "missing-barrier"),
    {},
};
