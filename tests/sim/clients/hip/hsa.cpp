// Programs on the HSA runtime alone: pools, copies, fills, the loader, queues, signals.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include "hip_programs.h"

#define HSA(call)                                                           \
  do {                                                                      \
    hsa_status_t code_ = (call);                                            \
    CHECK(code_ == HSA_STATUS_SUCCESS, "%s: %#x", #call, unsigned(code_));  \
  } while (0)

namespace {

struct Machine {
  hsa_agent_t host{}, gpu{};
  hsa_amd_memory_pool_t fine{}, kernarg{}, vram{};
};

hsa_status_t take_agent(hsa_agent_t agent, void *data) {
  hsa_device_type_t kind;
  HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &kind));
  (kind == HSA_DEVICE_TYPE_GPU ? static_cast<Machine *>(data)->gpu : static_cast<Machine *>(data)->host) = agent;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t take_pool(hsa_amd_memory_pool_t pool, void *data) {
  Machine *machine = static_cast<Machine *>(data);
  hsa_amd_segment_t segment;
  uint32_t flags = 0;
  HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
  if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
  HSA(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
  if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT) machine->kernarg = pool;
  else if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED) machine->fine = pool;
  else machine->vram = pool;  // the host's coarse-grained pool comes first, the GPU's last
  return HSA_STATUS_SUCCESS;
}

Machine open_machine() {
  Machine machine;
  HSA(hsa_init());
  HSA(hsa_iterate_agents(take_agent, &machine));
  HSA(hsa_amd_agent_iterate_memory_pools(machine.host, take_pool, &machine));
  HSA(hsa_amd_agent_iterate_memory_pools(machine.gpu, take_pool, &machine));
  return machine;
}

uint32_t *allocate(const Machine &machine, hsa_amd_memory_pool_t pool, size_t bytes) {
  void *memory = nullptr;
  hsa_agent_t both[] = {machine.host, machine.gpu};
  HSA(hsa_amd_memory_pool_allocate(pool, bytes, 0, &memory));
  HSA(hsa_amd_agents_allow_access(2, both, nullptr, memory));
  return static_cast<uint32_t *>(memory);
}

void wait_for(hsa_signal_t signal) {
  hsa_signal_value_t value = hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED);
  CHECK(value == 0, "the signal is %ld", long(value));
}

void hsa_copy_and_fill() {
  enum { COUNT = 30000 };
  Machine machine = open_machine();
  uint32_t *from = allocate(machine, machine.fine, COUNT * 4), *to = allocate(machine, machine.fine, COUNT * 4);
  uint32_t *near = allocate(machine, machine.vram, COUNT * 4);
  hsa_signal_t done;
  HSA(hsa_signal_create(1, 0, nullptr, &done));
  for (uint32_t i = 0; i < COUNT; i++) from[i] = i * 3, to[i] = 0;
  HSA(hsa_amd_memory_async_copy(near, machine.gpu, from, machine.host, COUNT * 4, 0, nullptr, done));
  wait_for(done);
  HSA(hsa_amd_memory_fill(near + 100, 0xABCD1234, 50));
  hsa_signal_store_relaxed(done, 1);
  HSA(hsa_amd_memory_async_copy(to, machine.host, near, machine.gpu, COUNT * 4, 0, nullptr, done));
  wait_for(done);
  for (uint32_t i = 0; i < COUNT; i++)
    CHECK(to[i] == (i >= 100 && i < 150 ? 0xABCD1234 : i * 3), "word %u is %#x", i, to[i]);
  HSA(hsa_shut_down());
}

void hsa_load_and_dispatch() {
  enum { COUNT = 4096 };
  Machine machine = open_machine();
  char name[64] = {};
  HSA(hsa_agent_get_info(machine.gpu, HSA_AGENT_INFO_NAME, name));
  std::vector<char> code = compile(R"(
extern "C" __global__ void add(const unsigned *from, unsigned *to, unsigned value) {
  unsigned i = blockIdx.x * 64 + threadIdx.x;
  to[i] = from[i] + value;
})", name);
  hsa_code_object_reader_t reader;
  hsa_executable_t executable;
  hsa_executable_symbol_t symbol;
  uint64_t object = 0;
  HSA(hsa_code_object_reader_create_from_memory(code.data(), code.size(), &reader));
  HSA(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, nullptr, &executable));
  HSA(hsa_executable_load_agent_code_object(executable, machine.gpu, reader, nullptr, nullptr));
  HSA(hsa_executable_freeze(executable, nullptr));
  HSA(hsa_executable_get_symbol_by_name(executable, "add.kd", &machine.gpu, &symbol));
  HSA(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &object));
  hsa_queue_t *queue;
  HSA(hsa_queue_create(machine.gpu, 64, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX, &queue));
  hsa_signal_t done;
  HSA(hsa_signal_create(1, 0, nullptr, &done));
  uint32_t *near = allocate(machine, machine.vram, COUNT * 4), *to = allocate(machine, machine.fine, COUNT * 4);
  struct Arguments { const uint32_t *from; uint32_t *to; uint32_t value; };
  Arguments *arguments = reinterpret_cast<Arguments *>(allocate(machine, machine.kernarg, 4096));
  for (uint32_t round = 1; round <= 100; round++) {
    for (uint32_t i = 0; i < COUNT; i++) near[i] = round * i;  // through the BAR: the packet's acquire fence flushes
    *arguments = {near, to, round};
    uint64_t index = hsa_queue_add_write_index_relaxed(queue, 1);
    auto *packet = static_cast<hsa_kernel_dispatch_packet_t *>(queue->base_address) + index % queue->size;
    std::memset(reinterpret_cast<char *>(packet) + 4, 0, sizeof *packet - 4);
    packet->workgroup_size_x = 64, packet->workgroup_size_y = packet->workgroup_size_z = 1;
    packet->grid_size_x = COUNT, packet->grid_size_y = packet->grid_size_z = 1;
    packet->kernel_object = object, packet->kernarg_address = arguments, packet->completion_signal = done;
    uint32_t header = HSA_PACKET_TYPE_KERNEL_DISPATCH | HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                      HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
    hsa_signal_store_relaxed(done, 1);
    __atomic_store_n(reinterpret_cast<uint32_t *>(packet), header | 1u << 16, __ATOMIC_RELEASE);
    hsa_signal_store_screlease(queue->doorbell_signal, hsa_signal_value_t(index));
    wait_for(done);
    for (uint32_t i = 0; i < COUNT; i++) CHECK(to[i] == round * i + round, "round %u: word %u is %u", round, i, to[i]);
  }
  HSA(hsa_queue_destroy(queue));
  HSA(hsa_executable_destroy(executable));
  HSA(hsa_shut_down());
}

}  // namespace

const HipProgram hsa_programs[] = {
    {"hsa_copy_and_fill", hsa_copy_and_fill},
    {"hsa_load_and_dispatch", hsa_load_and_dispatch},
    {},
};
