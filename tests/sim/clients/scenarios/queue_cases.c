// What queues do together. Each scenario runs on PM4 and on AQL queues: struct work means the same on both.
#include "work.h"

#define RING 8192
#define WORDS 16
#define SLOT 1024  // bytes; that many results of one queue

struct board { struct memory *result, *signals; };  // a slot of results and a signal for each index

static struct board board_of(uint32_t slots) { return (struct board){allocate(GTT, slots * SLOT), allocate(GTT, 4096)}; }
static uint64_t slot(const struct board *b, uint32_t index) { return va(b->result, index * SLOT); }
static uint64_t done(const struct board *b, uint32_t index) { return signal_va(b->signals, index); }

static void begin(const struct board *b, uint32_t count) { for (uint32_t i = 0; i < count; i++) signal_set(b->signals, i, 1); }

static void expect(const struct board *b, uint32_t index, uint32_t first, uint32_t count, const char *what) {
  signal_wait(b->signals, index);
  check_words(words(b->result) + index * SLOT / 4, first, count, what);
}

static void open_queues(const struct run *run, struct queue **queues, uint32_t count) {
  for (uint32_t q = 0; q < count; q++) queues[q] = queue_open(run->protocol, RING, 7);
}

// A burst that is longer than its ring: nothing is lost, and all of it is over with the last.
static void packet_flood(const struct run *run) {
  struct board b = board_of(8);
  struct queue *queue = queue_open(run->protocol, 4096, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    begin(&b, 1);
    for (uint32_t i = 0; i < 96; i++) make(queue, slot(&b, i % 8), round * 1000 + i, WORDS, i == 95 ? done(&b, 0) : 0);
    signal_wait(b.signals, 0);
    for (uint32_t i = 88; i < 96; i++) check_words(words(b.result) + i % 8 * SLOT / 4, round * 1000 + i, WORDS, "a burst");
  }
}

// Many queues of all priorities, every one with work before the host waits.
static void queue_flood(const struct run *run) {
  struct board b = board_of(16);
  struct queue *queues[16];
  for (uint32_t q = 0; q < run->queues; q++) queues[q] = queue_open(run->protocol, RING, q % 16);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    begin(&b, run->queues);
    for (uint32_t q = 0; q < run->queues; q++) make(queues[q], slot(&b, q), round * 65536 + q * 128, 128, done(&b, q));
    for (uint32_t q = 0; q < run->queues; q++) {
      expect(&b, q, round * 65536 + q * 128, 128, "a queue of many");
      if (round % 3 == 0) queue_update(queues[q], 100, (q + round) % 16);
    }
  }
}

static void open_run_close(const struct run *run, const struct board *b, uint32_t lane, uint32_t round) {
  struct queue *fresh = queue_open(run->protocol, 4096, round % 16);
  signal_set(b->signals, lane, 1);
  make(fresh, slot(b, lane), round * 100, WORDS, done(b, lane));
  expect(b, lane, round * 100, WORDS, "a fresh queue");
  drain(fresh);
  queue_close(fresh);
}

// Queues come and go beside one that stays.
static void queue_churn(const struct run *run) {
  struct board b = board_of(2);
  struct queue *survivor = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    open_run_close(run, &b, 0, round);
    signal_set(b.signals, 1, 1);
    derive(survivor, 0, slot(&b, 0), slot(&b, 1), 5, WORDS, done(&b, 1));
    expect(&b, 1, round * 100 + 5, WORDS, "the survivor");
  }
}

struct lane { const struct run *run; const struct board *board; struct queue *queue; uint32_t number; };

static void in_lanes(const struct run *run, void (*body)(void *), int with_queues) {
  struct board b = board_of(8);
  struct lane lanes[8];
  struct task *tasks[8];
  for (uint32_t n = 0; n < run->queues; n++)
    lanes[n] = (struct lane){run, &b, with_queues ? queue_open(run->protocol, RING, 7) : NULL, n};
  for (uint32_t n = 0; n < run->queues; n++) tasks[n] = task_start(body, &lanes[n]);
  for (uint32_t n = 0; n < run->queues; n++) task_join(tasks[n]);
}

static void churning(void *argument) {
  struct lane *me = argument;
  for (uint32_t round = 1; round <= me->run->rounds; round++) open_run_close(me->run, me->board, me->number, round);
}

static void submitting(void *argument) {
  struct lane *me = argument;
  for (uint32_t round = 1; round <= me->run->rounds; round++) {
    signal_set(me->board->signals, me->number, 1);
    make(me->queue, slot(me->board, me->number), round * 1000 + me->number, WORDS, done(me->board, me->number));
    expect(me->board, me->number, round * 1000 + me->number, WORDS, "a thread's queue");
  }
}

// Threads that make and destroy queues at once; threads with a queue each.
static void concurrent_queue_churn(const struct run *run) { in_lanes(run, churning, 0); }
static void concurrent_submit(const struct run *run) { in_lanes(run, submitting, 1); }

// A chain over queues, its last link submitted first.
static void dependency_chain(const struct run *run) {
  struct board b = board_of(16);
  struct queue *queues[16];
  open_queues(run, queues, run->queues);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    begin(&b, run->queues);
    for (uint32_t q = run->queues; q-- > 1;)
      derive(queues[q], done(&b, q - 1), slot(&b, q - 1), slot(&b, q), q, WORDS, done(&b, q));
    make(queues[0], slot(&b, 0), round * 1000, WORDS, done(&b, 0));
    for (uint32_t q = 0, expected = round * 1000; q < run->queues; q++) expect(&b, q, expected += q, WORDS, "a link");
  }
}

// One source, branches on queues of their own, and for each branch's words a piece of work that waits for all of them.
static void dependency_diamond(const struct run *run) {
  enum { SOURCE, BRANCH, SINK = 6 };
  struct board b = board_of(11);
  struct queue *queues[7];
  uint32_t branches = run->queues;
  open_queues(run, queues, branches + 2);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    begin(&b, SINK + branches);
    for (uint32_t n = 0; n < branches; n++) {
      struct work sink = {.from = slot(&b, BRANCH + n), .to = slot(&b, SINK + n), .value = 7, .count = WORDS,
                          .done = done(&b, SINK + n)};
      for (uint32_t each = 0; each < branches; each++) sink.waits[each] = done(&b, BRANCH + each);
      work_submit(queues[branches + 1], &sink);
    }
    for (uint32_t n = 0; n < branches; n++)
      derive(queues[1 + n], done(&b, SOURCE), slot(&b, SOURCE), slot(&b, BRANCH + n), 10 * n, WORDS, done(&b, BRANCH + n));
    make(queues[0], slot(&b, SOURCE), round * 1000, WORDS, done(&b, SOURCE));
    for (uint32_t n = 0; n < branches; n++) expect(&b, SINK + n, round * 1000 + 10 * n + 7, WORDS, "the sink");
  }
}

// Random graphs, consumers first. A node waits for up to `fan` earlier ones and takes the words of the first.
static void dag(const struct run *run, uint32_t fan) {
  struct board b = board_of(16);
  struct queue *queues[16];
  uint32_t random = run->seed, count = run->queues;
  open_queues(run, queues, count);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct work nodes[16];
    uint32_t expected[16];
    begin(&b, count);
    for (uint32_t n = 0; n < count; n++) {
      nodes[n] = (struct work){.to = slot(&b, n), .value = n ? n : round * 31337, .count = WORDS, .done = done(&b, n)};
      expected[n] = nodes[n].value;
      if (!n) continue;
      uint32_t parent = next_random(&random) % n, edges = 1 + next_random(&random) % fan;
      nodes[n].from = slot(&b, parent), nodes[n].waits[0] = done(&b, parent), expected[n] += expected[parent];
      for (uint32_t edge = 1; edge < edges; edge++) nodes[n].waits[edge] = done(&b, next_random(&random) % n);
    }
    for (uint32_t n = count; n-- > 0;) work_submit(queues[n], &nodes[n]);
    for (uint32_t n = 0; n < count; n++) expect(&b, n, expected[n], WORDS, "a node");
  }
}

static void random_dag(const struct run *run) { dag(run, 1); }
static void random_dag_fanin2(const struct run *run) { dag(run, 2); }
static void random_dag_fanin5(const struct run *run) { dag(run, 5); }

// A stopped queue takes work and does none until it runs again; another goes on.
static void queue_pause_resume(const struct run *run) {
  struct board b = board_of(2);
  struct queue *paused = queue_open(run->protocol, RING, 7), *other = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    begin(&b, 2);
    memset(b.result->at, 0, SLOT);
    queue_update(paused, 0, 7);
    make(paused, slot(&b, 0), round * 100, WORDS, done(&b, 0));
    make(other, slot(&b, 1), round, WORDS, done(&b, 1));
    expect(&b, 1, round, WORDS, "the other queue");
    STAYS(signals_of(b.signals)[0].value == 1 && !words(b.result)[1], "a stopped queue ran");
    queue_update(paused, 100, 7);
    expect(&b, 0, round * 100, WORDS, "the queue that was stopped");
    drain(paused);
  }
}

// Two queues hand words to and fro without the host.
static void gpu_ping_pong(const struct run *run) {
  enum { HANDS = 8 };
  struct board b = board_of(HANDS + 1);
  struct queue *queues[2];
  open_queues(run, queues, 2);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    begin(&b, HANDS + 1);
    for (uint32_t hand = 1; hand <= HANDS; hand += 2)
      derive(queues[1], done(&b, hand - 1), slot(&b, hand - 1), slot(&b, hand), hand, WORDS, done(&b, hand));
    make(queues[0], slot(&b, 0), round * 1000, WORDS, done(&b, 0));
    for (uint32_t hand = 2; hand <= HANDS; hand += 2)
      derive(queues[0], done(&b, hand - 1), slot(&b, hand - 1), slot(&b, hand), hand, WORDS, done(&b, hand));
    expect(&b, HANDS, round * 1000 + HANDS * (HANDS + 1) / 2, WORDS, "the last hand");
  }
}

struct gated { struct queue *queue; const struct board *board; uint32_t round; };

static void feeding(void *argument) {  // more than the ring holds
  struct gated *me = argument;
  for (uint32_t i = 0; i < 160; i++)
    make(me->queue, slot(me->board, 0), me->round * 1000 + i, WORDS, i == 159 ? done(me->board, 0) : 0);
}

// A queue behind a gate that the host holds: its producer comes to a stand, nothing runs, another queue goes on.
static void host_gate(const struct run *run) {
  enum { WORK, OTHER, GATE, PASSED };
  struct board b = board_of(4);
  struct queue *gated = queue_open(run->protocol, 4096, 7), *other = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    begin(&b, 4);
    memset(b.result->at, 0, SLOT);
    derive(gated, done(&b, GATE), slot(&b, OTHER), slot(&b, PASSED), 0, WORDS, done(&b, PASSED));
    struct gated feed = {gated, &b, round};
    struct task *producer = task_start(feeding, &feed);
    make(other, slot(&b, OTHER), round, WORDS, done(&b, OTHER));
    expect(&b, OTHER, round, WORDS, "the other queue");
    STAYS(!task_over(producer) && !words(b.result)[1], "something passed the gate");
    signal_set(b.signals, GATE, 0);
    task_join(producer);
    expect(&b, WORK, round * 1000 + 159, WORDS, "behind the gate");
    expect(&b, PASSED, round, WORDS, "the gate's own work");
  }
}

// A consumer of high priority needs a producer of low priority that the host holds back, beside one between them.
static void priority_dependency(const struct run *run) {
  enum { GATE, PRODUCED, CONSUMED, BETWEEN };
  struct board b = board_of(4);
  struct queue *low = queue_open(run->protocol, RING, 0), *high = queue_open(run->protocol, RING, 15),
               *medium = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    begin(&b, 4);
    queue_update(low, 100, round & 1), queue_update(high, 100, 15 - (round & 1));
    derive(high, done(&b, PRODUCED), slot(&b, PRODUCED), slot(&b, CONSUMED), 3, WORDS, done(&b, CONSUMED));
    derive(low, done(&b, GATE), 0, slot(&b, PRODUCED), round * 17, WORDS, done(&b, PRODUCED));
    make(medium, slot(&b, BETWEEN), round, 63, done(&b, BETWEEN));
    expect(&b, BETWEEN, round, 63, "medium priority");
    STAYS(signals_of(b.signals)[CONSUMED].value == 1, "the consumer did not wait");
    signal_set(b.signals, GATE, 0);
    expect(&b, CONSUMED, round * 17 + 3, WORDS, "high priority");
  }
}

// Buffers come and go under one queue: written at both ends, untouched between, nothing of the last ones.
static void allocation_churn(const struct run *run) {
  enum { WIDTH = 16 };
  struct board b = board_of(1);
  struct queue *queue = queue_open(run->protocol, RING, 7);
  for (uint32_t round = 1; round <= run->rounds; round++) {
    struct memory *buffers[WIDTH];
    begin(&b, 1);
    for (uint32_t i = 0; i < WIDTH; i++) {
      buffers[i] = allocate(GTT, 4096 * (1 + (round + i) % 4));
      make(queue, va(buffers[i], 0), round * 256 + i, 1, 0);
      make(queue, va(buffers[i], buffers[i]->size - 4), ~(round * 256 + i), 1, i == WIDTH - 1 ? done(&b, 0) : 0);
    }
    signal_wait(b.signals, 0);
    drain(queue);
    for (uint32_t i = WIDTH; i-- > 0;) {
      uint32_t last = buffers[i]->size / 4 - 1;
      CHECK(words(buffers[i])[0] == round * 256 + i && words(buffers[i])[last] == ~(round * 256 + i), "an end of buffer %u", i);
      for (uint32_t w = 1; w < last; w++) CHECK(!words(buffers[i])[w], "buffer %u: word %u was written", i, w);
      release(buffers[i]);
    }
  }
}

#define BOTH(name, body, rounds, many, pm4_queues, aql_queues, seed) \
  {name "-pm4", body, PM4, rounds, many, pm4_queues, seed}, {name "-aql", body, AQL, rounds, many, aql_queues, seed}

const struct scenario queue_scenarios[] = {
    BOTH("packet_flood", packet_flood, 1, 32, 1, 1, 0),
    BOTH("queue_flood", queue_flood, 3, 64, 16, 16, 0),
    BOTH("queue_churn", queue_churn, 2, 32, 1, 1, 0),
    BOTH("dependency_chain", dependency_chain, 2, 32, 16, 4, 0),
    BOTH("dependency_diamond", dependency_diamond, 2, 32, 5, 2, 0),
    BOTH("concurrent_submit", concurrent_submit, 4, 128, 8, 8, 0),
    BOTH("random_dag", random_dag, 2, 32, 16, 4, 12345),
    BOTH("random_dag-fanin2", random_dag_fanin2, 2, 32, 16, 4, 12345),
    BOTH("random_dag-native-fanin", random_dag_fanin5, 2, 32, 16, 4, 4321),
    BOTH("queue_pause_resume", queue_pause_resume, 2, 32, 2, 2, 0),
    BOTH("gpu_ping_pong", gpu_ping_pong, 2, 64, 2, 2, 0),
    BOTH("host_gate", host_gate, 1, 16, 2, 2, 0),
    BOTH("allocation_churn", allocation_churn, 1, 32, 1, 1, 0),
    BOTH("concurrent_queue_churn", concurrent_queue_churn, 1, 16, 8, 3, 0),
    BOTH("priority_dependency", priority_dependency, 2, 64, 3, 3, 0),
    {0},
};
