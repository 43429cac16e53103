// Scenarios on raw KFD ioctls: PROGRAM --list, or PROGRAM [--long] [--rounds N] [--seed N] [--patience MS] [NAME...].
// One line each, as TAP has it. --long: as many rounds as the corpus has by default or for its slow variants.
//
// What each does was told by the corpus of AMD's rocjitsu (ROCm/rocjitsu-test-corpus, corpus/runtime-cts), whose names
// they bear; the program is our own. It asks for a gfx12 card and knows nothing of a simulated one. It never ran on silicon.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "scenario.h"

static const struct scenario *const tables[] = {packet_scenarios, pm4_dispatch_scenarios, queue_scenarios, transfer_scenarios, dispatch_scenarios,
                                                process_scenarios, driver_scenarios};

enum verdict { PASSED, FAILED, SKIPPED };
struct trial { jmp_buf back; char said[512]; enum verdict verdict; };
static __thread struct trial *trial;

void fail(const char *file, int line, const char *format, ...) {
  va_list more;
  va_start(more, format);
  int at = snprintf(trial->said, sizeof trial->said, "%s:%d: ", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line);
  vsnprintf(trial->said + at, sizeof trial->said - at, format, more);
  va_end(more);
  trial->verdict = FAILED;
  longjmp(trial->back, 1);
}

void skip(const char *reason) {
  snprintf(trial->said, sizeof trial->said, "%s", reason);
  trial->verdict = SKIPPED;
  longjmp(trial->back, 1);
}

struct task { pthread_t thread; void (*body)(void *); void *argument; struct trial trial; int over; };

static void *task_main(void *argument) {
  struct task *task = argument;
  trial = &task->trial;
  if (!setjmp(task->trial.back)) task->body(task->argument);
  __atomic_store_n(&task->over, 1, __ATOMIC_RELEASE);
  return NULL;
}

struct task *task_start(void (*body)(void *), void *argument) {
  struct task *task = calloc(1, sizeof *task);
  task->body = body, task->argument = argument;
  CHECK(!pthread_create(&task->thread, NULL, task_main, task), "no thread");
  return task;
}

int task_over(struct task *task) { return __atomic_load_n(&task->over, __ATOMIC_ACQUIRE); }

void task_join(struct task *task) {
  pthread_join(task->thread, NULL);
  struct trial ended = task->trial;
  free(task);
  CHECK(ended.verdict == PASSED, "in a thread: %s", ended.said);
}

static enum verdict attempt(const struct scenario *scenario, uint32_t rounds, int many, uint32_t seed) {
  struct trial here = {.verdict = PASSED};
  struct run run = {scenario->protocol, rounds ? rounds : many ? scenario->many_rounds : scenario->rounds, scenario->queues,
                    seed ? seed : scenario->seed, scenario->name};
  trial = &here;
  uint64_t begun = now_ns();
  if (!setjmp(here.back)) device_open(), scenario->body(&run);
  enum verdict verdict = here.verdict;
  char said[sizeof here.said];
  strcpy(said, here.said);
  if (!setjmp(here.back)) leave_nothing();
  else if (verdict != FAILED) verdict = here.verdict, strcpy(said, here.said);
  if (verdict == FAILED) printf("not ok %s # %s\n", scenario->name, said);
  else if (verdict == SKIPPED) printf("ok %s # skip %s\n", scenario->name, said);
  else printf("ok %s # %u rounds, %.2f s\n", scenario->name, run.rounds, (now_ns() - begun) / 1e9);
  fflush(stdout);
  return verdict;
}

int worker_main(const char *name, uint32_t rounds);  // processes.c

int main(int argc, char **argv) {
  uint32_t rounds = 0, seed = 0, named = 0, failed = 0, ran = 0;
  int many = 0, only_list = 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--worker") && i + 2 < argc) {
      struct trial here = {.verdict = PASSED};
      trial = &here;
      if (!setjmp(here.back)) return worker_main(argv[i + 1], atoi(argv[i + 2]));
      fprintf(stderr, "%s: %s\n", argv[i + 1], here.said);
      return 1;
    }
    if (!strcmp(argv[i], "--rounds") && i + 1 < argc) rounds = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--seed") && i + 1 < argc) seed = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--patience") && i + 1 < argc) patience_ns = atoi(argv[++i]) * 1000000ull;
    else if (!strcmp(argv[i], "--long")) many = 1;
    else if (!strcmp(argv[i], "--list")) only_list = 1;
    else if (argv[i][0] == '-') return fprintf(stderr, "%s: --list, --long, --rounds N, --seed N, --patience MS or names\n", argv[i]), 2;
    else named++;
  }
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const struct scenario *each = tables[t]; each->name; each++) {
      int wanted = !named;
      for (int i = 1; i < argc; i++) wanted |= !strcmp(argv[i], each->name);
      if (only_list) puts(each->name);
      else if (wanted) ran++, failed += attempt(each, rounds, many, seed) == FAILED;
    }
  if (!only_list && !ran) return fprintf(stderr, "no such scenario: see --list\n"), 2;
  return failed != 0;
}
