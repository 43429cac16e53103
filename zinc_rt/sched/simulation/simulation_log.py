"""The per-request log of a simulation, and its statistics: waits, gaps, shares. One column per quantity."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.request import Request
from zinc_rt.sched.simulation.arrival import Arrival
from zinc_rt.sched.step_cost import NS
from zinc_rt.sched.tenant import CLASSES, Priority, Tenant

NEVER = -1
WINDOW = 64  # steps over which shares are compared


class SimulationLog:
    """i64 columns [requests], NEVER if the event has not happened. Steps are numbered from 1 when they end;
    `arrived_step` is the number of steps ended before the arrival."""

    def __init__(self, arrivals: Sequence[Arrival], tenants: Sequence[Tenant], slots: int) -> None:
        count = len(arrivals)
        index = {tenant.name: number for number, tenant in enumerate(tenants)}
        self.tenants = tenants
        self.tenant = np.array([index.get(arrival.tenant, 0) for arrival in arrivals], np.int64)
        lowest = np.array([int(tenant.priority) for tenant in tenants], np.int64)
        asked = np.array(
            [0 if arrival.priority is None else int(arrival.priority) for arrival in arrivals], np.int64
        )
        self.priority = np.maximum(asked, lowest[self.tenant])
        self.prompt = np.array([arrival.prompt for arrival in arrivals], np.int64)
        self.output = np.array([arrival.output for arrival in arrivals], np.int64)
        self.arrived_ns = np.array([round(arrival.at * NS) for arrival in arrivals], np.int64)
        self.arrived_step, self.bound_step, self.first_step = (np.full(count, NEVER, np.int64) for _ in range(3))
        self.first_ns, self.last_ns, self.ended_ns = (np.full(count, NEVER, np.int64) for _ in range(3))
        self.made_tokens = np.zeros(count, np.int64)
        self.cached = np.full(count, NEVER, np.int64)  # of its prompt, as it was first bound
        self.reasons: Counter[str] = Counter()
        self._gaps, self._gap_class = array("i"), array("b")  # microseconds, and whose
        self._beside = np.zeros((len(Priority), 2), np.int64)  # tokens and ns of steps in which a class decoded
        self._slot_request = np.full(slots, NEVER, np.int64)
        self.most_slots, self.most_pages = (
            np.zeros(len(tenants), np.int64) for _ in range(2)
        )  # at once, by tenant
        # by tenant: live requests, and what was given in this window, to whom if they waited in each of its steps
        self._live, self._slot_steps, self._tokens = (np.zeros(len(tenants), np.int64) for _ in range(3))
        self._waited = np.ones(len(tenants), bool)
        self._windows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    # --- what happens

    def record_arrival(self, number: int, step: int) -> None:
        self.arrived_step[number] = step
        self._live[self.tenant[number]] += 1

    def record_plan(self, plan: StepPlan, slots: Sequence[Request | None], step: int) -> None:
        """Record a planned step with these requests in its slots."""
        for slot, request in enumerate(slots):
            number = NEVER if request is None else request.number - 1
            if number != self._slot_request[slot]:
                self._slot_request[slot] = number
                if request is not None and self.bound_step[number] == NEVER:
                    self.bound_step[number] = step
                    self.cached[number] = request.cached
        requests = self._slot_request[self._slot_request != NEVER]
        tenants = len(self.tenants)
        bound = np.bincount(self.tenant[requests], minlength=tenants)
        self._waited &= self._live > bound
        self._slot_steps += bound
        np.maximum(self.most_slots, bound, out=self.most_slots)
        planned = np.bincount(plan.slot[: plan.tokens], minlength=len(slots))
        np.add.at(self._tokens, self.tenant[requests], planned[self._slot_request != NEVER])
        if step % WINDOW == 0:
            self._end_window()

    def stepped(self, plan: StepPlan, took_ns: int) -> None:
        """Record the tokens and the duration of a step, for every class that decoded in it."""
        assert plan.decode_set is not None
        for priority in np.unique(self.priority[plan.decode_set.numbers - 1]).tolist():
            self._beside[priority] += plan.tokens, took_ns

    def _end_window(self) -> None:
        who = np.flatnonzero(self._waited)
        self._windows.append((who, self._slot_steps[who], self._tokens[who]))
        self._waited[:] = True
        self._slot_steps[:] = self._tokens[:] = 0

    def generated(self, numbers: np.ndarray, now_ns: int, step: int) -> None:
        """Record that each of these requests generated a token."""
        before = self.last_ns[numbers]
        fresh = numbers[before == NEVER]
        self.first_ns[fresh], self.first_step[fresh] = now_ns, step
        going = before != NEVER
        gaps = (now_ns - before[going]) // 1000
        self._gaps.frombytes(gaps.astype(np.int32).tobytes())
        self._gap_class.frombytes(self.priority[numbers[going]].astype(np.int8).tobytes())
        self.last_ns[numbers] = now_ns
        self.made_tokens[numbers] += 1

    def ended(self, number: int, reason: str, now_ns: int) -> None:
        self.ended_ns[number] = now_ns
        self.reasons[reason] += 1
        self._live[self.tenant[number]] -= 1

    # --- what it says

    def of(self, tenant: str) -> np.ndarray:
        """Return the tenant's requests."""
        names = [tenant.name for tenant in self.tenants]
        return np.flatnonzero(self.tenant == names.index(tenant))

    def requests_of_class(self, priority: Priority) -> np.ndarray:
        return np.flatnonzero(self.priority == priority)

    def count_steps_to(self, column: np.ndarray, requests: np.ndarray) -> np.ndarray:
        """Return the steps that ended between arrival and event, for the requests that have the event."""
        seen = requests[column[requests] != NEVER]
        return column[seen] - self.arrived_step[seen]

    def list_first_token_seconds(self, requests: np.ndarray) -> np.ndarray:
        seen = requests[self.first_ns[requests] != NEVER]
        return (self.first_ns[seen] - self.arrived_ns[seen]) / NS

    def list_gap_seconds(self, priority: Priority) -> np.ndarray:
        """Return the times between consecutive tokens, over all requests of a class."""
        gaps, classes = np.array(self._gaps, np.int32), np.array(self._gap_class, np.int8)
        return gaps[classes == priority] / 1e6

    def compute_speed_beside(self, priority: Priority) -> float:
        """Return the tokens per second of the steps in which a request of the class decoded, 0 without any."""
        tokens, ns = self._beside[priority].tolist()
        return tokens * NS / ns if ns else 0.0

    def compute_hit_share(self) -> float:
        """Return the fraction of prompt tokens that came from the cache when the request was first bound."""
        bound = self.cached != NEVER
        asked = int(self.prompt[bound].sum())
        return float(self.cached[bound].sum()) / asked if asked else 0.0

    def count_delivered_tokens(self) -> int:
        """Return the prompt and answer tokens of requests that ended normally."""
        whole = self.made_tokens == self.output
        return int((self.prompt[whole] + self.made_tokens[whole]).sum())

    def list_jain_indices(self) -> tuple[list[float], list[float]]:
        """Return Jain's index of slots, and of computed tokens, for each window and class in which two or
        more tenants waited throughout: 1.0 means equal service per weight."""
        slots, tokens = [], []
        for who, slot_steps, computed in self._list_contended():
            weights = np.array([self.tenants[tenant].weight for tenant in who])
            slots.append(compute_jain_index(slot_steps / weights))
            tokens.append(compute_jain_index(computed / weights))
        return slots, tokens

    def count_slot_steps(self, pair: tuple[int, int]) -> tuple[int, np.ndarray]:
        """Return the number of windows in which two tenants waited throughout, and the slots of each summed over
        their steps, i64 [2]."""
        seen = [
            steps[[who.tolist().index(one) for one in pair]]
            for who, steps, _ in self._windows
            if {*pair} <= {*who}
        ]
        return len(seen), np.sum(seen, axis=0) if seen else np.zeros(2, np.int64)

    def _list_contended(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        classes = np.array([int(tenant.priority) for tenant in self.tenants])
        for who, slot_steps, tokens in self._windows:
            for priority in CLASSES:
                same = classes[who] == priority
                if same.sum() > 1:
                    yield who[same], slot_steps[same], tokens[same]


def compute_jain_index(values: np.ndarray) -> float:
    """Return Jain's index: (sum)² / (n sum of squares). It is 1 if all are equal and 1/n if one has everything."""
    squares = float((values.astype(float) ** 2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else 1.0


def compute_percentiles(values: np.ndarray) -> tuple[float, float]:
    """Return the 50th and the 99th percentile, each an observed value."""
    if not len(values):
        return 0.0, 0.0
    quantiles = np.percentile(values, (50, 99), method="inverted_cdf")
    return float(quantiles[0]), float(quantiles[1])
