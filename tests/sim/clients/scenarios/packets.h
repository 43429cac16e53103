// Command streams: PM4 of gfx12 compute, SDMA 7, AQL. Layouts: PAL's gfx12_merged_f32_mec_pm4_packets.h, the kernel's
// sdma_v6_0_0_pkt_open.h, hsa.h and ROCr's amd_hsa_*.h.
#pragma once
#include <string.h>
#include "scenario.h"

struct stream { uint32_t count, words[4096]; };

static inline void put(struct stream *s, uint32_t word) { CHECK(s->count < 4096, "stream is full"); s->words[s->count++] = word; }
static inline void put_va(struct stream *s, uint64_t at) { put(s, at), put(s, at >> 32); }

// --- PM4

enum compare { ALWAYS, LESS, LESS_EQUAL, EQUAL, NOT_EQUAL, GREATER_EQUAL, GREATER };
enum atomic { ATOMIC_SWAP = 0x07, ATOMIC_ADD = 0x0F, ATOMIC_SUB = 0x10, ATOMIC_AND = 0x15, ATOMIC_OR = 0x16, ATOMIC_XOR = 0x17,
              ATOMIC_64 = 0x20 };
#ifndef ACQUIRE_ALL  // each of these orders something: -DNAME=0 makes a program without it
#define ACQUIRE_ALL (1u << 7 | 1u << 8 | 1u << 14)  // GLK_INV, GLV_INV, GL2_INV
#endif
#ifndef RELEASE_GL2_WB
#define RELEASE_GL2_WB (1u << 9)
#endif
#ifndef CP_SYNC
#define CP_SYNC (1u << 31)
#endif
#define ONE_DWORD_NOP 0xFFFF1000u
#define COMPUTE_SH 0x2C00

static inline void pm4(struct stream *s, uint32_t opcode, uint32_t dwords) { put(s, 3u << 30 | (dwords - 2) << 16 | opcode << 8); }

static inline void pm4_write(struct stream *s, uint64_t to, uint32_t count, const uint32_t *values) {
  pm4(s, 0x37, 4 + count), put(s, 5u << 8 | 1u << 20), put_va(s, to);  // memory, confirmed
  for (uint32_t i = 0; i < count; i++) put(s, values[i]);
}
static inline void pm4_write1(struct stream *s, uint64_t to, uint32_t value) { pm4_write(s, to, 1, &value); }

static inline void pm4_copy(struct stream *s, uint64_t from, uint64_t to) {  // 4 bytes
  pm4(s, 0x40, 6), put(s, 2u | 2u << 8 | 1u << 20), put_va(s, from), put_va(s, to);
}

static inline void pm4_clock(struct stream *s, uint64_t to) {  // the GPU's counter, 8 bytes
  pm4(s, 0x40, 6), put(s, 9u | 2u << 8 | 1u << 16 | 1u << 20), put_va(s, 0), put_va(s, to);
}

static inline void pm4_atomic(struct stream *s, uint32_t operation, uint64_t at, uint64_t operand) {
  pm4(s, 0x1E, 9), put(s, operation), put_va(s, at), put_va(s, operand), put_va(s, 0), put(s, 0);
}

static inline void pm4_wait(struct stream *s, enum compare function, uint64_t at, uint32_t reference, uint32_t mask) {
  pm4(s, 0x3C, 7), put(s, function | 1u << 4), put_va(s, at), put(s, reference), put(s, mask), put(s, 4);
}

static inline void pm4_wait64(struct stream *s, enum compare function, uint64_t at, uint64_t reference) {
  pm4(s, 0x93, 9), put(s, function | 1u << 4), put_va(s, at), put_va(s, reference), put_va(s, ~0ull), put(s, 4);
}

static inline void pm4_acquire(struct stream *s) {
  pm4(s, 0x58, 8), put(s, 0), put(s, ~0u), put(s, 0xFF), put_va(s, 0), put(s, 10), put(s, ACQUIRE_ALL);
}

// At the end of everything before: 8 bytes, and an interrupt where `event` is not 0.
static inline void pm4_release_event(struct stream *s, uint64_t to, uint64_t value, uint32_t event) {
  pm4(s, 0x49, 8), put(s, 0x28 | 5u << 8 | RELEASE_GL2_WB << 12), put(s, 2u << 29 | (event ? 2u << 24 : 0)), put_va(s, to);
  put_va(s, value), put(s, event);
}
static inline void pm4_release(struct stream *s, uint64_t to, uint64_t value) { pm4_release_event(s, to, value, 0); }

static inline void pm4_flush_waves(struct stream *s) { pm4(s, 0x46, 2), put(s, 0x07 | 4u << 8); }  // CS_PARTIAL_FLUSH

static inline void pm4_dma(struct stream *s, uint64_t from, uint64_t to, uint32_t bytes) {  // through GL2, with CP_SYNC
  pm4(s, 0x50, 7), put(s, CP_SYNC | 3u << 29 | 3u << 20), put_va(s, from), put_va(s, to), put(s, bytes);
}

static inline void pm4_pad(struct stream *s) { while (s->count % 8) put(s, ONE_DWORD_NOP); }

static inline void pm4_indirect(struct stream *s, uint64_t at, uint32_t dwords, int chain) {
  pm4(s, 0x3F, 4), put_va(s, at), put(s, dwords | 1u << 23 | (chain ? 1u << 20 : 0));
}

static inline void pm4_if(struct stream *s, uint64_t at, uint32_t dwords) {  // COND_EXEC
  pm4(s, 0x22, 5), put_va(s, at), put(s, 0), put(s, dwords);
}

static inline void pm4_set_sh(struct stream *s, uint32_t reg, uint32_t count, const uint32_t *values) {
  pm4(s, 0x76, 2 + count), put(s, reg - COMPUTE_SH);
  for (uint32_t i = 0; i < count; i++) put(s, values[i]);
}

// --- SDMA

static inline void sdma_copy(struct stream *s, uint64_t from, uint64_t to, uint32_t bytes) {
  put(s, 1), put(s, bytes - 1), put(s, 0), put_va(s, from), put_va(s, to);
}
static inline void sdma_fence(struct stream *s, uint64_t to, uint32_t value) { put(s, 5 | 3u << 16), put_va(s, to), put(s, value); }
static inline void sdma_trap(struct stream *s, uint32_t event) { put(s, 6), put(s, event); }
static inline void sdma_wait(struct stream *s, uint64_t at, uint32_t value) {
  put(s, 8 | (uint32_t)EQUAL << 28 | 1u << 31), put_va(s, at), put(s, value), put(s, ~0u), put(s, 0xFFF << 16 | 10);
}

static inline void sdma_gcr(struct stream *s) { put(s, 0x11 | 1u << 8), put(s, 0), put(s, 1u << 31), put(s, 0), put(s, 0); }
#ifndef SDMA_HDP_FLUSH
#define SDMA_HDP_FLUSH 1
#endif
static inline void sdma_hdp_flush(struct stream *s) {  // as ROCr sends it, without parameters
  if (SDMA_HDP_FLUSH) put(s, 8), put(s, 0), put(s, 1u << 31), put(s, 0), put(s, 0), put(s, 0);
}

// --- AQL

#ifndef SYSTEM_SCOPES
#define SYSTEM_SCOPES (2u << 9 | 2u << 11)
#endif
#define AGENT_SCOPES (1u << 9 | 1u << 11)
#ifndef BARRIER_BIT
#define BARRIER_BIT (1u << 8)
#endif
enum aql_kind { AQL_VENDOR, AQL_INVALID, AQL_DISPATCH, AQL_AND, AQL_AGENT, AQL_OR };

struct dispatch {  // hsa_kernel_dispatch_packet_t
  uint16_t header, dimensions, group[3], reserved;
  uint32_t grid[3], private_bytes, group_bytes;
  uint64_t kernel, arguments, reserved_2, signal;
};

struct barrier {  // hsa_barrier_and_packet_t, and its or
  uint16_t header, reserved[3];
  uint64_t signals[5], reserved_2, signal;
};

struct vendor_ib {  // amd_aql_pm4_ib
  uint16_t header, format;
  uint32_t jump[4], left, reserved[8];
  uint64_t signal;
};

struct signal {  // amd_signal_t
  int64_t kind, value;
  uint64_t mailbox;
  uint32_t event, reserved;
  uint64_t started, ended, reserved_2[2];
};

_Static_assert(sizeof(struct dispatch) == 64 && sizeof(struct barrier) == 64 && sizeof(struct vendor_ib) == 64 &&
               sizeof(struct signal) == 64, "packets and signals have 64 bytes");

static inline volatile struct signal *signals_of(struct memory *memory) { return (volatile struct signal *)memory->at; }
static inline uint64_t signal_va(struct memory *memory, uint32_t index) { return va(memory, index * sizeof(struct signal)); }
static inline void signal_set(struct memory *memory, uint32_t index, int64_t value) {
  signals_of(memory)[index].kind = 1;
  __atomic_store_n(&signals_of(memory)[index].value, value, __ATOMIC_RELEASE);
}
static inline void signal_wait(struct memory *memory, uint32_t index) {
  wait64((volatile uint64_t *)&signals_of(memory)[index].value, 0, "a signal to be 0");
}
