"""The time of a step: predicted from its prompt tokens, decodes and context, then corrected by measurement.

PREDICTED has the times that `zinc-rt perf predict` gives (the cost model of zinc_rt/cost), which no card has
confirmed. tests/perf/test_step_cost.py recomputes them. The planner's latency budgets and the simulation use the
same constants.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from statistics import median_low

from zinc_rt.cost.step_curve import StepCurve

NS = 1_000_000_000
LEAST_PROMPT = 4  # tokens: one tile of the kernels in canonical-1
EVERY = 4  # steps of a kind and size between two looks at it
SAMPLES = 9  # durations of a kind and size of step that its correction is the median of


@dataclass(frozen=True, slots=True)
class StepCost:
    """Microseconds: `step_us` per step, `prompt_us` per prompt token, `decode_us` per decoding sequence,
    `context_us` per context token that the step's decodes read. A `curve`, if set, replaces `step_us` and
    `prompt_us`; `decode_us` is then the additional time of each decode after the first, and a prompt's context
    counts as the curve's pairs instead of `context_us`. With a `prompt_curve`, prompts have an ordering of
    their own: a step with both is two launches, whose times add up. `least_prompt`: tokens of a
    prompt that every step computes, whatever its budget, one tile of the kernels.
    """

    card: str
    model: str
    step_us: float
    prompt_us: float
    decode_us: float
    context_us: float
    source: str
    curve: StepCurve | None = None
    least_prompt: int = LEAST_PROMPT
    prompt_curve: StepCurve | None = None

    def nanoseconds(self, prompt: int, decodes: int, context: int, drafts: int = 0) -> int:
        """Return the time of a step with these numbers of prompt tokens, decodes, context tokens and further
        tokens of the decodes. The context is divided equally among the decodes and the prompt."""
        batched = prompt + drafts
        if self.curve is None:
            tokens_us = self.prompt_us * batched + self.decode_us * decodes
            return round(1000 * (self.step_us + tokens_us + self.context_us * context))
        of_prompts = batched if self.prompt_curve is None else prompt
        read = context * decodes / (decodes + 1) if of_prompts else context
        pairs = of_prompts * max(
            0.0, context - read - of_prompts
        )  # the curve has those of the prompt's own tokens
        rows_us = self.decode_us * max(0, decodes - 1)
        if self.prompt_curve is None:
            launches_us, pair_us = self.curve.base_us(batched + decodes), self.curve.pair_us
        else:
            launches_us, pair_us = 0.0, self.prompt_curve.pair_us
            if decodes:
                launches_us = self.curve.base_us(drafts + decodes)
            if prompt:
                launches_us += self.prompt_curve.base_us(prompt)
        return round(1000 * (launches_us + rows_us + self.context_us * read + pair_us * pairs))


PREDICTED = StepCost(
    "Radeon AI PRO R9700",
    "the shape of Qwen3 8B, Q4_K_M",
    step_us=0.0,
    prompt_us=0.0,
    decode_us=360.0,
    context_us=0.573,
    source="zinc-rt perf predict --model qwen3-8b-q4_k_m.gguf --ctx 32768, likely case, canonical-1",
    curve=StepCurve(
        tokens=(1, 4, 8, 16, 20, 32, 64, 128, 132, 256, 512),
        microseconds=(
            10_405.0,
            11_853.0,
            19_546.0,
            35_893.0,
            45_290.0,
            69_803.0,
            135_278.0,
            266_588.0,
            280_130.0,
            535_658.0,
            1_070_326.0,
        ),
        tile=4,
        tiled_from=2,
        pair_us=0.1366,
    ),
)


@dataclass(slots=True)
class _MeasuredRatios:
    """The last steps of one kind and size, as ratios of measured to predicted time."""

    last: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    steps: int = 0
    _ratio: float = 1.0
    _due: int = 0  # the step from which on the ratio is to be computed anew

    def compute_ratio(self) -> float:
        """Return the median of the last steps."""
        if self.steps >= self._due:
            self._ratio = median_low(self.last)
            self._due = self.steps + (EVERY if self.steps > SAMPLES else 1)
        return self._ratio


PREDICTED_WMMA = replace(
    PREDICTED,
    source=f"{PREDICTED.source}; prompts with --prefill-ordering wmma-f16",
    least_prompt=128,
    prompt_curve=StepCurve(
        tokens=(4, 32, 64, 96, 128, 132, 192, 256, 260, 384, 388, 512),
        microseconds=(
            23_270.0,
            23_496.0,
            24_161.0,
            24_947.0,
            25_853.0,
            40_459.0,
            42_361.0,
            44_760.0,
            60_407.0,
            67_650.0,
            83_313.0,
            91_948.0,
        ),
        tile=4,
        tiled_from=1,
        pair_us=0.1369,
    ),
)
PREDICTED_BY_PREFILL = {  # by the ordering of prompts
    "": PREDICTED,
    "wmma-f16": PREDICTED_WMMA,
    "wmma-bf16": replace(  # the same times: matrix operations limit both
        PREDICTED_WMMA, source=f"{PREDICTED.source}; prompts with --prefill-ordering wmma-bf16"
    ),
}


@dataclass(frozen=True, slots=True)
class MeasuredSize:
    """A row of the report. `tokens`: the largest step of this size; `ratio`: measured over predicted time."""

    prompts: bool
    tokens: int
    steps: int
    ratio: float


class MeasuredCost:
    """A cost that follows the device: the prediction times the median of the last measured ratios.

    Ratios are kept by kind (with or without prompt tokens) and size, in powers of two, so each belongs to one
    variant of a graph. The first step of a size is ignored, because it may build graphs and compile kernels. A
    size that has not run yet uses the ratio of the nearest size that has. Memory is bounded: SAMPLES numbers per
    size.
    """

    def __init__(self, prior: StepCost) -> None:
        self.prior = prior
        self._seen: tuple[dict[int, _MeasuredRatios], dict[int, _MeasuredRatios]] = (
            {},
            {},
        )  # without and with prompt tokens, by size
        self._nearest: dict[tuple[bool, int], _MeasuredRatios | None] = {}  # what `_find_nearest_measured` found

    def observe(self, prompt: int, decodes: int, context: int, took_ns: int, drafts: int = 0) -> None:
        """Record the time of a step. A step with a duration of 0 is ignored, because its clock does not
        advance.
        """
        batched = prompt + drafts
        sizes, size = self._seen[batched > 0], (batched + decodes - 1).bit_length()
        seen = sizes.get(size)
        if seen is None:
            sizes[size] = _MeasuredRatios(steps=1)
            return
        if took_ns <= 0:
            return
        if not seen.last:
            self._nearest.clear()
        seen.steps += 1
        seen.last.append(took_ns / self.prior.nanoseconds(prompt, decodes, context, drafts))

    def nanoseconds(self, prompt: int, decodes: int, context: int, drafts: int = 0) -> int:
        """Return the expected time of a step. `drafts`: see StepCost."""
        batched = prompt + drafts
        ratio = self._find_ratio(batched > 0, (batched + decodes - 1).bit_length())
        return round(ratio * self.prior.nanoseconds(prompt, decodes, context, drafts))

    def prompt_tokens(self, budget_ns: int, decodes: int, context: int, maximum: int) -> int:
        """Return how many prompt tokens, at most `maximum`, fit the budget together with the decodes; `context`:
        tokens read by the decodes and the prompt before these tokens.
        """

        def predict_ns(count: int) -> int:
            return self.prior.nanoseconds(count, decodes, context + count)

        return self._find_fitting_units(budget_ns, predict_ns, decodes, maximum, prompts=True)

    def count_further_decodes(
        self, budget_ns: int, prompt: int, decodes: int, context: int, maximum: int, each: int
    ) -> int:
        """Return how many further decodes, at most `maximum` with `each` context tokens, fit the budget together
        with decodes `decodes` with `context` and `prompt` prompt tokens.
        """

        def predict_ns(count: int) -> int:
            return self.prior.nanoseconds(prompt, decodes + count, context + count * each)

        return self._find_fitting_units(budget_ns, predict_ns, prompt + decodes, maximum, prompts=prompt > 0)

    def report(self) -> Iterator[MeasuredSize]:
        """Yield the measurements, by kind and size."""
        for prompts, sizes in enumerate(self._seen):
            for size, seen in sorted(sizes.copy().items()):  # a scrape reads it from another thread
                if seen.last:
                    yield MeasuredSize(bool(prompts), 1 << size, seen.steps, seen.compute_ratio())

    def _find_fitting_units(
        self, budget_ns: int, predicted_ns: Callable[[int], int], tokens: int, maximum: int, *, prompts: bool
    ) -> int:
        """Return the largest number of units, at most `maximum`, with which a step of `tokens` stays within the
        budget; `predicted_ns` returns its time for a number of units. Sizes are tried from the largest, each with
        its ratio; within a size, more units take longer.
        """
        for size in range((tokens + maximum - 1).bit_length(), -1, -1):
            minimum = max(1, (1 << size >> 1) + 1 - tokens)
            largest = min(maximum, (1 << size) - tokens)
            if minimum > largest:
                continue
            limit_ns = budget_ns / self._find_ratio(prompts, size)
            if predicted_ns(minimum) > limit_ns:
                continue
            while minimum < largest:
                middle = (minimum + largest + 1) // 2
                if predicted_ns(middle) <= limit_ns:
                    minimum = middle
                else:
                    largest = middle - 1
            return minimum
        return 0

    def _find_ratio(self, prompts: bool, size: int) -> float:
        kind = prompts, size
        if kind not in self._nearest:
            self._nearest[kind] = self._find_nearest_measured(prompts, size)
        seen = self._nearest[kind]
        return 1.0 if seen is None else seen.compute_ratio()

    def _find_nearest_measured(self, prompts: bool, size: int) -> _MeasuredRatios | None:
        for sizes in (self._seen[prompts], self._seen[not prompts]):
            known = [item for item, seen in sizes.items() if seen.last]
            if known:
                return sizes[min(known, key=lambda item: (abs(item - size), item))]
        return None
