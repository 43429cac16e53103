// Packets of AQL queues: where the program launched each. The table is in this process; the device reads a row of it when
// it reports a finding of that packet.
#include "preload.h"

#define ROW_BITS 14
#define ROWS (1 << ROW_BITS)
#define PACKET 64

struct queue { uint32_t type, features; char *ring; uint64_t doorbell; uint32_t size; };  // the start of hsa_queue_t
struct row { uint64_t packet, index; char place[240]; };
static struct row table[ROWS];

static void announce_table(void) {
  static pid_t announced;  // a child has a table of its own
  pid_t here = getpid();
  if (__atomic_exchange_n(&announced, here, __ATOMIC_ACQ_REL) == here) return;
  char header[128];
  snprintf(header, sizeof header, "{\"op\": \"launches\", \"va\": %llu, \"rows\": %d, \"row\": %zu}",
           (unsigned long long)(uintptr_t)table, ROWS, sizeof *table);
  tell_device(header);
}

// Rings are aligned alike: a hash keeps the packets of two queues apart. LaunchTable of serve/remote_memory.py has it too.
static struct row *row_of(uint64_t packet) { return table + (packet / PACKET * 0x9E3779B97F4A7C15 >> (64 - ROW_BITS)); }

// The packets from `first` on are written by the calling code.
static void reserved(const struct queue *queue, uint64_t first, uint64_t count) {
  char place[sizeof table->place];
  if (!queue || !queue->size || !own_process()) return;
  announce_table();
  find_callers(place, sizeof place);
  for (uint64_t index = first; index < first + count && index < first + queue->size; index++) {
    uint64_t packet = (uintptr_t)queue->ring + index % queue->size * PACKET;
    struct row *row = row_of(packet);
    row->packet = 0;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(row->place, place, sizeof place), row->index = index;
    __atomic_store_n(&row->packet, packet, __ATOMIC_RELEASE);
  }
}

#define ADD(name, call) \
  uint64_t name(const struct queue *queue, uint64_t count) { \
    uint64_t first = ((__typeof__(name) *)runtime_function(call))(queue, count); \
    reserved(queue, first, count); \
    return first; \
  }
#define CAS(name, call) \
  uint64_t name(const struct queue *queue, uint64_t expected, uint64_t value) { \
    uint64_t before = ((__typeof__(name) *)runtime_function(call))(queue, expected, value); \
    if (before == expected && value > expected) reserved(queue, expected, value - expected); \
    return before; \
  }
#define STORE(name, call) \
  void name(const struct queue *queue, uint64_t value) { \
    if (value) reserved(queue, value - 1, 1); \
    ((__typeof__(name) *)runtime_function(call))(queue, value); \
  }

ADD(hsa_queue_add_write_index_relaxed, ADD_RELAXED)
ADD(hsa_queue_add_write_index_scacquire, ADD_SCACQUIRE)
ADD(hsa_queue_add_write_index_screlease, ADD_SCRELEASE)
ADD(hsa_queue_add_write_index_scacq_screl, ADD_SCACQ_SCREL)
CAS(hsa_queue_cas_write_index_relaxed, CAS_RELAXED)
CAS(hsa_queue_cas_write_index_scacquire, CAS_SCACQUIRE)
CAS(hsa_queue_cas_write_index_screlease, CAS_SCRELEASE)
CAS(hsa_queue_cas_write_index_scacq_screl, CAS_SCACQ_SCREL)
STORE(hsa_queue_store_write_index_relaxed, STORE_RELAXED)
STORE(hsa_queue_store_write_index_screlease, STORE_SCRELEASE)
