// Several processes on one GPU. A worker is this program again: --worker NAME ROUNDS, with a file of its parent's as 3.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "work.h"

#define RING 8192
#define WORDS 16
#define INHERITED 3
extern char **environ;

static pid_t start_worker(const char *job, enum protocol protocol, uint32_t rounds, int file) {
  char name[32], count[16];
  pid_t child;
  posix_spawn_file_actions_t files;
  snprintf(name, sizeof name, "%s-%s", job, protocol == AQL ? "aql" : "pm4"), snprintf(count, sizeof count, "%u", rounds);
  char *words[] = {"/proc/self/exe", "--worker", name, count, NULL};
  posix_spawn_file_actions_init(&files);
  if (file >= 0) posix_spawn_file_actions_adddup2(&files, file, INHERITED);
  int error = posix_spawn(&child, words[0], &files, NULL, words, environ);
  posix_spawn_file_actions_destroy(&files);
  CHECK(!error, "posix_spawn: %s", strerror(error));
  return child;
}

static int ended(pid_t child) {  // its status
  int status;
  for (uint64_t end = now_ns() + 20000000000ull;;) {
    pid_t came = waitpid(child, &status, WNOHANG);
    if (came == child) return status;
    if (now_ns() > end) kill(child, SIGKILL);
    CHECK(now_ns() < end, "a worker does not end");
    usleep(500);
  }
}

static void one_round(struct queue *queue, struct memory *result, struct memory *signals, uint32_t value) {
  signal_set(signals, 0, 1);
  make(queue, va(result, 0), value, WORDS, signal_va(signals, 0));
  signal_wait(signals, 0);
  check_words(words(result), value, WORDS, "a process's queue");
}

static int work_alone(enum protocol protocol, uint32_t rounds) {
  struct queue *queue = queue_open(protocol, RING, 7);
  struct memory *result = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  for (uint32_t round = 1; round <= rounds; round++) one_round(queue, result, signals, round * 1000 + getpid());
  leave_nothing();
  return 0;
}

// Processes with the same addresses for different memory, at once.
static void multiprocess(const struct run *run) {
  pid_t children[4];
  for (uint32_t n = 0; n < run->queues; n++) children[n] = start_worker("multiprocess", run->protocol, run->rounds * 4, -1);
  struct queue *queue = queue_open(run->protocol, RING, 7);
  struct memory *result = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  for (uint32_t round = 1; round <= run->rounds * 4; round++) one_round(queue, result, signals, round);
  for (uint32_t n = 0; n < run->queues; n++) {
    int status = ended(children[n]);
    CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "worker %u ended with %#x", n, status);
  }
}

static int block(enum protocol protocol) {  // a queue with work that waits for ever; the parent hears of it
  struct queue *queue = queue_open(protocol, RING, 7);
  struct memory *result = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  one_round(queue, result, signals, 1);
  signal_set(signals, 1, 1), signal_set(signals, 2, 1);
  derive(queue, signal_va(signals, 1), 0, va(result, 1024), 1, WORDS, signal_va(signals, 2));
  CHECK(write(INHERITED, "R", 1) == 1, "the parent does not listen");
  for (;;) pause();
}

// A process dies with a queue that waits: the others go on, and new queues can be made.
static void process_exit_inflight(const struct run *run) {
  struct queue *survivor = queue_open(run->protocol, RING, 7);
  struct memory *result = allocate(GTT, 4096), *signals = allocate(GTT, 4096);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    int ends[2];
    char ready = 0;
    CHECK(!pipe2(ends, O_CLOEXEC), "pipe: %s", strerror(errno));
    pid_t child = start_worker("exit", run->protocol, 1, ends[1]);
    close(ends[1]);
    struct pollfd wait = {ends[0], POLLIN, 0};
    int heard = poll(&wait, 1, 10000) == 1 && read(ends[0], &ready, 1) == 1 && ready == 'R';
    close(ends[0]);
    if (heard) one_round(survivor, result, signals, round * 100);
    kill(child, SIGKILL);
    int status = ended(child);
    CHECK(heard, "the worker did not come to its wait");
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the worker ended with %#x", status);
    one_round(survivor, result, signals, round * 100 + 1);
    struct queue *fresh = queue_open(run->protocol, RING, 7);
    one_round(fresh, result, signals, round * 100 + 2);
    drain(fresh);
    queue_close(fresh);
  }
}

enum { SHARED_BYTES = 16384, TO_CHILD = 4096, TO_PARENT = 8192, MAX_ROUNDS = 31 };

static int import_and_answer(enum protocol protocol, uint32_t rounds) {
  struct queue *queue = queue_open(protocol, RING, 7);
  void *at = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, INHERITED, 0);
  CHECK(at != MAP_FAILED, "mmap of a DMA-BUF: %s", strerror(errno));
  struct { uint64_t va, handle; uint32_t gpu, file; } ask = {(uint64_t)at, 0, gpu_id(), INHERITED};
  kfd(KFD_IMPORT_DMABUF, &ask, "IMPORT_DMABUF");
  struct memory shared = {.at = at, .va = ask.va, .size = SHARED_BYTES, .handle = ask.handle};
  map_to_gpu(&shared);
  for (uint32_t round = 0; round < rounds; round++) {
    derive(queue, signal_va(&shared, round * 2), va(&shared, TO_CHILD), va(&shared, TO_PARENT), 17, WORDS, signal_va(&shared, round * 2 + 1));
    signal_wait(&shared, round * 2 + 1);
  }
  drain(queue);
  leave_nothing();
  unmap_from_gpu(&shared);
  kfd(KFD_FREE_MEMORY, &shared.handle, "FREE_MEMORY_OF_GPU");
  return 0;
}

// A buffer in two processes by DMA-BUF: the parent's queue makes words, the child's queue answers, by signals in it.
static void dmabuf_process_handoff(const struct run *run) {
  struct memory *shared = allocate(GTT, SHARED_BYTES);
  struct queue *queue = queue_open(run->protocol, RING, 7);
  uint32_t rounds = run->rounds < MAX_ROUNDS ? run->rounds : MAX_ROUNDS;
  for (uint32_t n = 0; n < rounds * 2; n++) signal_set(shared, n, 1);
  struct { uint64_t handle; uint32_t flags, file; } ask = {shared->handle, O_RDWR | O_CLOEXEC, 0};
  int error = kfd_call(KFD_EXPORT_DMABUF, &ask);
  if (error == ENOSYS) skip("EXPORT_DMABUF: not implemented");
  CHECK(!error, "EXPORT_DMABUF: %s", strerror(error));
  pid_t child = start_worker("dmabuf", run->protocol, rounds, ask.file);
  close(ask.file);
  for (uint32_t round = 0; round < rounds; round++) {
    make(queue, va(shared, TO_CHILD), round * 1000, WORDS, signal_va(shared, round * 2));
    signal_wait(shared, round * 2 + 1);
    check_words(words(shared) + TO_PARENT / 4, round * 1000 + 17, WORDS, "the other process's answer");
  }
  int status = ended(child);
  CHECK(WIFEXITED(status) && !WEXITSTATUS(status), "the worker ended with %#x", status);
}

int worker_main(const char *name, uint32_t rounds) {
  enum protocol protocol = strstr(name, "-aql") ? AQL : PM4;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  device_open();
  if (!strncmp(name, "multiprocess", 12)) return work_alone(protocol, rounds);
  if (!strncmp(name, "exit", 4)) return block(protocol);
  if (!strncmp(name, "dmabuf", 6)) return import_and_answer(protocol, rounds);
  return 2;
}

const struct scenario process_scenarios[] = {
    {"multiprocess-pm4", multiprocess, PM4, 1, 16, 4},
    {"multiprocess-aql", multiprocess, AQL, 1, 16, 4},
    {"process_exit_inflight-pm4", process_exit_inflight, PM4, 1, 16},
    {"process_exit_inflight-aql", process_exit_inflight, AQL, 1, 16},
    {"dmabuf_process_handoff-pm4", dmabuf_process_handoff, PM4, 2, 31},
    {"dmabuf_process_handoff-aql", dmabuf_process_handoff, AQL, 2, 31},
    {0},
};
