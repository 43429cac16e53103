"""A step that does not come back, through a real model: everybody goes on from their tokens, as alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.runner import Runner, StepHandle, StepOutput
from zinc_rt.exec import DeadlineMissed
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.mixes.driver import list_left
from zinc_rt.sched.mixes.mix import MixedRequest
from zinc_rt.sched.sampling import Sampling
from zinc_rt.validate.isolation.alone import answer_solo
from zinc_rt.validate.isolation.server import MixServer

STEM = "qwen35moe-q"
REQUESTS = [
    MixedRequest(
        number,
        number % 3,
        tuple(range(number, number + 15 + number)),
        Sampling(max_tokens=5, temperature=1.0, seed=number, ignore_eos=True),
        0,
    )
    for number in range(1, 5)
]


@pytest.fixture
def engine_stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def open_engine(stack: ExitStack) -> Engine:
    limits = SequenceLimits(128, 4, state_rows=13, step_tokens=40)
    return stack.enter_context(
        Engine(read_gguf(FOLDER / f"{STEM}.gguf"), CpuBackend("canonical-1"), limits=limits)
    )


def fail_step(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of that number is late."""
    real, steps = Runner.collect, [0]

    def collect_late(self: Runner, handle: StepHandle, timeout_seconds: float | None = None) -> StepOutput:
        output = real(self, handle, timeout_seconds)
        steps[0] += 1
        if steps[0] == index:
            raise DeadlineMissed("the step did not finish")
        return output

    monkeypatch.setattr(Runner, "collect", collect_late)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("failing_step", [1, 6])
def test_late_step_loses_no_tokens(
    engine_stack: ExitStack, failing_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_engine(engine_stack)
    alone = {(request.number, 0): answer_solo(first, request, 0) for request in REQUESTS}
    server = MixServer(first, alone, name=STEM)
    server.model._renew = lambda: open_engine(engine_stack).runner
    for request in REQUESTS:
        server.submit(request)
    fail_step(failing_step, monkeypatch)
    got: dict[int, list[int]] = {}
    for step in range(200):
        if step and not server.scheduler.live:
            break
        batch = server.step()
        assert not server.scheduler.check()
        for number, token in zip(batch.requests.tolist(), batch.tokens.tolist(), strict=True) if batch else ():
            got.setdefault(number, []).append(token)
    assert server.scheduler.counts.failed_steps == 1
    assert got == {number: answer.tokens for (number, _), answer in alone.items()}
    assert (
        not server.witness.diverged
        and not server.shadow.findings
        and not [*server.audit(), *list_left(server.scheduler)]
    )


def test_lost_device_ends_every_request(engine_stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    server = MixServer(open_engine(engine_stack), {}, name=STEM)
    for request in REQUESTS:
        server.submit(request)
    fail_step(3, monkeypatch)
    with pytest.raises(DeadlineMissed, match="did not finish"):
        for _ in range(9):
            server.step()
    batch = server.step()
    assert batch is not None and {reason for _, _, reason in batch.ended} == {"device_lost"}
    assert not server.scheduler.live
