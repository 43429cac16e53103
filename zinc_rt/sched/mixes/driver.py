"""Run a mix: submit requests, apply events, and step until all requests have ended."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from zinc_rt.sched.mixes.mix import MixedRequest, MixEvent, RequestKey, RequestMix
from zinc_rt.sched.plan import Batch
from zinc_rt.sched.scheduler import Scheduler

IDLE_STEPS = 400  # in a row without anything to compute: somebody waits for ever
AUDIT_EVERY = 25  # steps from one look at the device's tables and records to the next


class DrivenServer(Protocol):
    """A scheduler with a device. `audit` compares the device's tables and records with the host's."""

    @property
    def scheduler(self) -> Scheduler: ...

    def submit(self, request: MixedRequest) -> None: ...

    def step(self) -> Batch | None: ...

    def audit(self) -> list[str]: ...


@dataclass(slots=True)
class MixOutcome:
    """The outcome of a mix. `delivered` are the tokens of each choice as batches delivered them. `cancelled` are
    the choices cancelled by an event, with any number of tokens. `broken` are the audit's messages and their step.
    """

    delivered: dict[RequestKey, list[int]] = field(default_factory=dict)
    ended: dict[RequestKey, str] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    events: dict[str, int] = field(default_factory=dict)
    broken: list[tuple[int, str]] = field(default_factory=list)
    stuck: str = ""


class MixDriver:
    """Feeds a mix to a server. `say` is called with the number of each step; `audit_every` is in steps."""

    def __init__(
        self,
        mix: RequestMix,
        server: DrivenServer,
        say: Callable[[int], None] = lambda step: None,
        *,
        audit_every: int = AUDIT_EVERY,
    ) -> None:
        self.mix, self.server, self.scheduler, self.say = mix, server, server.scheduler, say
        self.audit_every = audit_every
        self.outcome = MixOutcome()
        self._waiting = list(mix.requests)
        self._events: dict[int, list[MixEvent]] = {}
        for event in mix.events:
            self._events.setdefault(event.step, []).append(event)
        self._held: set[int] = set()

    def run(self) -> MixOutcome:
        step = idle = 0
        while self._waiting or self.scheduler.live:
            self._submit_due_requests(step, at_once=not self.scheduler.live)
            for event in self._events.get(step, ()):
                self._apply_event(event)
            step += 1
            batch = self._run_step(step)
            if self.outcome.broken:
                break
            self.say(step)
            self.outcome.broken += [(step, text) for text in self.scheduler.check()]
            if batch is None:
                idle += 1
                self._resume_all()
                if idle > IDLE_STEPS:
                    waiting = ", ".join(str(number) for number in sorted(self.scheduler.live))
                    self.outcome.stuck = f"step {step}: nothing to compute, and requests {waiting} wait"
                    break
                continue
            idle = 0
            self._record_batch(batch)
            if step % self.audit_every == 0:
                self.outcome.broken += [(step, text) for text in self.server.audit()]
            if self.outcome.broken:
                break
        if not self.outcome.broken and not self.outcome.stuck:
            self.outcome.broken += [(step, text) for text in (*self.server.audit(), *list_left(self.scheduler))]
        return self.outcome

    def _submit_due_requests(self, step: int, *, at_once: bool) -> None:
        """Submit the due requests; if no request is running, submit the next one."""
        while self._waiting and (self._waiting[0].arrives <= step or at_once):
            self.server.submit(self._waiting.pop(0))
            at_once = False

    def _apply_event(self, event: MixEvent) -> None:
        """Apply an event to one of the running or paused requests."""
        running = [request for request in self.scheduler.running() if not request.held]
        if event.kind == "resume":
            self._resume_all()
        elif running:
            request = running[event.pick % len(running)]
            self.outcome.events[event.kind] = self.outcome.events.get(event.kind, 0) + 1
            if event.kind == "park":
                self.scheduler.park(request)
            elif event.kind == "evict":
                self.scheduler.evict(request)
            elif event.kind == "hold":
                self.scheduler.hold(request.number, True)
                self._held.add(request.number)
            else:
                self.scheduler.cancel(request.number)
                self.outcome.cancelled.add(request.number)

    def _resume_all(self) -> None:
        for number in sorted(self._held):
            self.scheduler.hold(number, False)
        self._held.clear()

    def _record_batch(self, batch: Batch) -> None:
        if len(batch.tokens) != len(batch.requests):
            message = f"{len(batch.tokens)} tokens are delivered for {len(batch.requests)} requests"
            self.outcome.broken.append((batch.step, message))
            return
        for number, choice, token in zip(
            batch.requests.tolist(), batch.choice.tolist(), batch.tokens.tolist(), strict=True
        ):
            self.outcome.delivered.setdefault((number, choice), []).append(token)
        for number, choice, reason in batch.ended:
            self.outcome.ended[number, choice] = reason

    def _run_step(self, step: int) -> Batch | None:
        """Run a step. A crash is recorded as a finding."""
        try:
            return self.server.step()
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).stem}.{frame.name}, line {frame.lineno}"
            self.outcome.broken.append((step, f"stopped in {where}: {type(error).__name__}: {error}"))
            return None


def list_left(scheduler: Scheduler) -> Iterator[str]:
    """Return the resources that are still allocated after all requests have ended."""
    cache = scheduler.cache
    for group, pool in zip(cache.groups, cache.pools, strict=True):
        if pool.pool.used:
            yield f"{pool.pool.used} pages of group {group.name} are still allocated after the last request"
    if cache.rows is not None and cache.rows.used:
        yield f"{cache.rows.used} state rows are still allocated after the last request"
    if scheduler.speculation is not None and (kept := scheduler.speculation.list_requests()):
        yield f"the draft lengths of {len(kept)} requests are kept after the last request"
    if len(scheduler.slots.free) != scheduler.limits.slots:
        yield f"{scheduler.limits.slots - len(scheduler.slots.free)} slots still bound after the last request"
