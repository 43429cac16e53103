"""Timings of one model's requests and steps, recorded as the scheduler's observer.

The observer runs in the engine thread, within a step, and only adds to arrays; `metrics.py` reads them in
other threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.sched.plan import Batch, StepPlan
from zinc_rt.sched.request import Request, State
from zinc_rt.sched.state import SchedulerState, StepTimes
from zinc_rt.serve.observe.histogram import Histogram

# The edges are vLLM's (vllm/v1/metrics/loggers.py), so that dashboards for it fit.
FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640,
    2560,
)  # fmt: skip
BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
STEP = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)  # ours: of a step's parts
PHASES = ("schedule", "device", "commit")
RATE_SECONDS = 60


@dataclass(slots=True)
class RequestTimes:
    """Times of one choice, in nanoseconds of the scheduler's clock; 0 if the event has not happened."""

    arrived_ns: int
    admitted_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0


class ModelMetrics:
    """Histograms and rates of one scheduler. `ended`: called in the engine thread for each finished choice."""

    def __init__(
        self, scheduler: SchedulerState, ended: Callable[[Request, RequestTimes, int], None] | None = None
    ) -> None:
        self.first_token = Histogram(FIRST_TOKEN)
        self.between_tokens = Histogram(BETWEEN)
        self.whole = Histogram(REQUEST)
        self.queue, self.prefill, self.decode, self.running = (Histogram(REQUEST) for _ in range(4))
        self.step_tokens = Histogram(STEP_TOKENS)
        self.prompt_tokens, self.generated_tokens = (
            Histogram(_make_bucket_bounds(scheduler.limits.ctx)) for _ in "pg"
        )
        self.step = {phase: Histogram(STEP) for phase in PHASES}
        self.tenant_wait: dict[int, Histogram] = {}
        self._scheduler, self._tell_end = scheduler, ended
        self._times: dict[tuple[int, int], RequestTimes] = {}
        self._over: list[tuple[int, int]] = []  # finished by the step that ends now, which drew their last token
        self._made: deque[tuple[int, int]] = deque()  # second, tokens drawn in it
        scheduler.observers.append(self)

    # --- in the engine's thread

    def event(self, what: str, request: Request, amount: int) -> None:
        key = request.number, request.choice
        if what == "arrive":
            self._times[key] = RequestTimes(request.arrived_ns)
        elif what == "admit":
            self._record_admission(request)
        elif what == "end":
            self._record_end(request)

    def _record_admission(self, request: Request) -> None:
        times = self._times[request.number, request.choice]
        if not times.admitted_ns:
            times.admitted_ns = self._scheduler.now_ns
            waited = (times.admitted_ns - times.arrived_ns) / 1e9
            self.queue.observe(waited)
            self.tenant_wait.setdefault(request.tenant, Histogram(REQUEST)).observe(waited)

    def _record_end(self, request: Request) -> None:
        key = request.number, request.choice
        times, now_ns = self._times[key], self._scheduler.clock_ns()
        if request.state is State.FINISHED:
            self._over.append(key)
        else:
            del self._times[key]
        self.whole.observe((now_ns - times.arrived_ns) / 1e9)
        self.prompt_tokens.observe(request.prompt)
        self.generated_tokens.observe(request.generated)
        if times.admitted_ns:
            self.running.observe((now_ns - times.admitted_ns) / 1e9)
        if times.first_ns:
            self.decode.observe((now_ns - times.first_ns) / 1e9)
        if self._tell_end is not None:
            self._tell_end(request, times, now_ns)

    def stepped(self, plan: StepPlan, batch: Batch, times: StepTimes) -> None:
        self.step_tokens.observe(plan.tokens)
        edges = times.began_ns, times.planned_ns, times.computed_ns, times.ended_ns
        for phase, begin, end in zip(PHASES, edges, edges[1:], strict=False):
            self.step[phase].observe((end - begin) / 1e9)
        self._record_tokens(batch, times.ended_ns)
        for key in self._over:
            del self._times[key]
        self._over.clear()

    def _record_tokens(self, batch: Batch, now_ns: int) -> None:
        gaps: list[float] = []
        for key in zip(batch.requests.tolist(), batch.choice.tolist(), strict=True):
            one = self._times.get(key)
            if one is None:  # it failed with this very token: its grammar has no next
                continue
            if one.last_ns:
                gaps.append((now_ns - one.last_ns) / 1e9)
            else:
                one.first_ns = now_ns
                self.first_token.observe((now_ns - one.arrived_ns) / 1e9)
                self.prefill.observe((now_ns - one.admitted_ns) / 1e9)
            one.last_ns = now_ns
        self.between_tokens.observe_all(gaps)
        second = now_ns // 10**9
        if self._made and self._made[-1][0] == second:
            self._made[-1] = second, self._made[-1][1] + len(batch.tokens)
        else:
            self._made.append((second, len(batch.tokens)))
            while self._made[0][0] <= second - RATE_SECONDS:
                self._made.popleft()

    # --- from any thread

    def compute_tokens_per_second(self) -> float:
        """Return the sampled tokens per second, over the last minute or since the first step."""
        now = self._scheduler.clock_ns() // 10**9
        result = [(second, count) for second, count in tuple(self._made) if second > now - RATE_SECONDS]
        return sum(count for _, count in result) / max(1, now - result[0][0]) if result else 0.0


def _make_bucket_bounds(maximum: int) -> list[float]:
    """Return 1, 2, 5, 10, 20 ... up to `maximum`: histogram edges for token counts."""
    edges = (digit * 10.0**power for power in range(len(str(maximum))) for digit in (1, 2, 5))
    return [edge for edge in edges if edge <= maximum]
