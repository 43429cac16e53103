// Streams, events, graphs, host functions, threads.
#include <atomic>
#include <thread>

#include "hip_programs.h"

static const char *STEP = R"(
extern "C" __global__ void step(unsigned *values, unsigned factor, unsigned offset) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = values[i] * factor + offset;
})";
enum { COUNT = 4096 };

static void step(hipStream_t stream, hipFunction_t function, unsigned *values, unsigned factor, unsigned offset) {
  launch_on(stream, function, dim3(COUNT / 256), dim3(256), 0, values, factor, offset);
}

static void order_in_a_stream() {
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  std::vector<unsigned> values(COUNT, 1), back(COUNT);
  Device<unsigned> memory(size_t{COUNT});
  hipFunction_t function = kernel(STEP, "step");
  HIP(hipMemcpyAsync(memory.at, values.data(), memory.bytes(), hipMemcpyHostToDevice, stream));
  for (unsigned i = 0; i < 20; i++) step(stream, function, memory.at, 3, i);
  HIP(hipMemcpyAsync(back.data(), memory.at, memory.bytes(), hipMemcpyDeviceToHost, stream));
  HIP(hipStreamSynchronize(stream));
  unsigned expected = 1;
  for (unsigned i = 0; i < 20; i++) expected = expected * 3 + i;
  expect(back, [&](size_t) { return expected; });
  HIP(hipStreamDestroy(stream));
}

static void streams_wait_for_events() {
  hipStream_t one, other;
  hipEvent_t done, again;
  HIP(hipStreamCreateWithFlags(&one, hipStreamNonBlocking));
  HIP(hipStreamCreateWithFlags(&other, hipStreamNonBlocking));
  HIP(hipEventCreateWithFlags(&done, hipEventDisableTiming));
  HIP(hipEventCreateWithFlags(&again, hipEventDisableTiming));
  Device<unsigned> memory(size_t{COUNT});
  HIP(hipMemset(memory.at, 0, memory.bytes()));
  HIP(hipDeviceSynchronize());
  hipFunction_t function = kernel(STEP, "step");
  unsigned expected = 0;
  for (unsigned round = 0; round < 10; round++) {
    step(one, function, memory.at, 5, round);
    HIP(hipEventRecord(done, one));
    HIP(hipStreamWaitEvent(other, done, 0));
    step(other, function, memory.at, 7, 1);
    HIP(hipEventRecord(again, other));
    HIP(hipStreamWaitEvent(one, again, 0));
    expected = (expected * 5 + round) * 7 + 1;
  }
  HIP(hipStreamSynchronize(one));
  CHECK(hipEventQuery(done) == hipSuccess && hipStreamQuery(one) == hipSuccess, "still busy");
  expect(memory.read(), [&](size_t) { return expected; });
  HIP(hipEventDestroy(done));
  HIP(hipEventDestroy(again));
  HIP(hipStreamDestroy(one));
  HIP(hipStreamDestroy(other));
}

static void times_of_events() {
  hipEvent_t first, last;
  HIP(hipEventCreate(&first));
  HIP(hipEventCreate(&last));
  Device<unsigned> memory(size_t{COUNT});
  HIP(hipMemset(memory.at, 0, memory.bytes()));
  hipFunction_t function = kernel(STEP, "step");
  HIP(hipEventRecord(first, nullptr));
  for (int i = 0; i < 5; i++) step(nullptr, function, memory.at, 2, 1);
  HIP(hipEventRecord(last, nullptr));
  HIP(hipEventSynchronize(last));
  float milliseconds = 0;
  HIP(hipEventElapsedTime(&milliseconds, first, last));
  CHECK(milliseconds > 0, "%g ms", double(milliseconds));
  HIP(hipEventDestroy(first));
  HIP(hipEventDestroy(last));
}

static void streams_with_priorities() {
  int lowest = 0, highest = 0;
  HIP(hipDeviceGetStreamPriorityRange(&lowest, &highest));
  hipFunction_t function = kernel(STEP, "step");
  for (int priority = highest; priority <= lowest; priority++) {
    hipStream_t stream;
    HIP(hipStreamCreateWithPriority(&stream, hipStreamDefault, priority));
    Device<unsigned> memory(std::vector<unsigned>(COUNT, 4));
    step(stream, function, memory.at, 2, 3);
    HIP(hipStreamSynchronize(stream));
    expect(memory.read(), [](size_t) { return 11; });
    HIP(hipStreamDestroy(stream));
  }
}

static void functions_of_the_host() {
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  std::vector<unsigned> back(COUNT);
  Device<unsigned> memory(std::vector<unsigned>(COUNT, 1));
  static unsigned seen;
  hipFunction_t function = kernel(STEP, "step");
  step(stream, function, memory.at, 10, 2);
  HIP(hipMemcpyAsync(back.data(), memory.at, memory.bytes(), hipMemcpyDeviceToHost, stream));
  HIP(hipLaunchHostFunc(stream, [](void *values) { seen = *static_cast<unsigned *>(values); }, back.data()));
  step(stream, function, memory.at, 1, 1);
  HIP(hipStreamSynchronize(stream));
  CHECK(seen == 12 && memory.read()[7] == 13, "%u, %u", seen, memory.read()[7]);
  HIP(hipStreamDestroy(stream));
}

static void captured_graph() {
  hipStream_t stream;
  hipGraph_t graph;
  hipGraphExec_t instance;
  HIP(hipStreamCreate(&stream));
  std::vector<unsigned> back(COUNT);
  Device<unsigned> memory(std::vector<unsigned>(COUNT, 1));
  hipFunction_t function = kernel(STEP, "step");
  HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  for (unsigned i = 0; i < 5; i++) step(stream, function, memory.at, 2, i);
  HIP(hipMemcpyAsync(back.data(), memory.at, memory.bytes(), hipMemcpyDeviceToHost, stream));
  HIP(hipStreamEndCapture(stream, &graph));
  HIP(hipGraphInstantiate(&instance, graph, nullptr, nullptr, 0));
  unsigned expected = 1;
  for (int round = 0; round < 4; round++) {
    HIP(hipGraphLaunch(instance, stream));
    for (unsigned i = 0; i < 5; i++) expected = expected * 2 + i;
  }
  HIP(hipStreamSynchronize(stream));
  expect(back, [&](size_t) { return expected; });
  HIP(hipGraphExecDestroy(instance));
  HIP(hipGraphDestroy(graph));
  HIP(hipStreamDestroy(stream));
}

static void built_graph() {
  hipGraph_t graph;
  hipGraphExec_t instance;
  hipGraphNode_t fill, left, right, join, copy;
  HIP(hipGraphCreate(&graph, 0));
  Device<unsigned> memory(size_t{2 * COUNT});
  std::vector<unsigned> back(2 * COUNT);
  hipFunction_t function = kernel(STEP, "step");
  hipMemsetParams filling = {memory.at, 4, 0, 3, 2 * COUNT, 1};
  filling.dst = memory.at, filling.elementSize = 4, filling.height = 1, filling.pitch = 0, filling.value = 3, filling.width = 2 * COUNT;
  HIP(hipGraphAddMemsetNode(&fill, graph, nullptr, 0, &filling));
  auto add_step = [&](hipGraphNode_t *node, std::vector<hipGraphNode_t> after, unsigned *at, unsigned groups, unsigned factor, unsigned offset) {
    void *arguments[] = {&at, &factor, &offset};
    hipKernelNodeParams parameters = {};
    parameters.func = function, parameters.gridDim = dim3(groups), parameters.blockDim = dim3(256), parameters.kernelParams = arguments;
    HIP(hipGraphAddKernelNode(node, graph, after.data(), after.size(), &parameters));
  };
  add_step(&left, {fill}, memory.at, COUNT / 256, 5, 1);
  add_step(&right, {fill}, memory.at + COUNT, COUNT / 256, 7, 2);
  add_step(&join, {left, right}, memory.at, 2 * COUNT / 256, 2, 0);
  HIP(hipGraphAddMemcpyNode1D(&copy, graph, &join, 1, back.data(), memory.at, memory.bytes(), hipMemcpyDeviceToHost));
  HIP(hipGraphInstantiate(&instance, graph, nullptr, nullptr, 0));
  for (int round = 0; round < 3; round++) {
    back.assign(2 * COUNT, 0);
    HIP(hipGraphLaunch(instance, nullptr));
    HIP(hipDeviceSynchronize());
    expect(back, [](size_t i) { return i < COUNT ? 32 : 46; });
  }
  HIP(hipGraphExecDestroy(instance));
  HIP(hipGraphDestroy(graph));
}

static void threads_with_streams() {
  hipFunction_t function = kernel(STEP, "step");
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 4; number++)
    threads.emplace_back([&, number] {
      hipStream_t stream;
      HIP(hipStreamCreate(&stream));
      std::vector<unsigned> values(COUNT, number), back(COUNT);
      Device<unsigned> memory(values);
      for (unsigned i = 0; i < 10; i++) step(stream, function, memory.at, 3, number);
      HIP(hipMemcpyAsync(back.data(), memory.at, memory.bytes(), hipMemcpyDeviceToHost, stream));
      HIP(hipStreamSynchronize(stream));
      unsigned expected = number;
      for (unsigned i = 0; i < 10; i++) expected = expected * 3 + number;
      expect(back, [&](size_t) { return expected; });
      HIP(hipStreamDestroy(stream));
      right++;
    });
  for (std::thread &thread : threads) thread.join();
  CHECK(right == 4, "%d threads of 4", int(right));
}

static void values_written_by_a_stream() {
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  void *signal = nullptr;
  HIP(hipExtMallocWithFlags(&signal, 8, hipMallocSignalMemory));
  *static_cast<volatile uint64_t *>(signal) = 0;
  Device<unsigned> memory(std::vector<unsigned>(COUNT, 1));
  hipFunction_t function = kernel(STEP, "step");
  HIP(hipStreamWaitValue32(stream, signal, 3, hipStreamWaitValueEq, 0xFFFFFFFF));
  step(stream, function, memory.at, 4, 4);
  CHECK(hipStreamQuery(stream) == hipErrorNotReady, "the stream did not wait");
  *static_cast<volatile uint64_t *>(signal) = 3;
  HIP(hipStreamSynchronize(stream));
  expect(memory.read(), [](size_t) { return 8; });
  HIP(hipFree(signal));
  HIP(hipStreamDestroy(stream));
}

const HipProgram stream_programs[] = {
    {"order_in_a_stream", order_in_a_stream},
    {"streams_wait_for_events", streams_wait_for_events},
    {"times_of_events", times_of_events},
    {"streams_with_priorities", streams_with_priorities},
    {"functions_of_the_host", functions_of_the_host},
    {"captured_graph", captured_graph},
    {"built_graph", built_graph},
    {"threads_with_streams", threads_with_streams},
    {"values_written_by_a_stream", values_written_by_a_stream},
    {},
};
