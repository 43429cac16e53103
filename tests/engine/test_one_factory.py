"""Every front end and gate has the same scheduler limits; a difference is a named shortcut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from zinc_rt import LLM
from zinc_rt.backends import registry
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.answering import Answering
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.kmd.userq import SUSPEND_SECONDS
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.perf.bench_sched import STEP_TOKENS, SchedulerLoad
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.simulation.simulate import Simulation, SimulationSettings
from zinc_rt.sched.state import SchedulerLimits, describe_limit_changes
from zinc_rt.sched.step_cost import PREDICTED
from zinc_rt.sched.tenant import CLASSES, Priority, Tenant, with_budgets
from zinc_rt.serve.config.settings import Config, DeviceSettings
from zinc_rt.serve.engine.served_model import open_model
from zinc_rt.validate.isolation.server import SLICE_TOKENS, MixServer

SLOTS, CTX = 4, 128


@contextmanager
def open_engine() -> Iterator[Engine]:
    limits = SequenceLimits(CTX, SLOTS, rows=SLOTS)
    with Engine(read_gguf(FOLDER / "qwen3-q.gguf"), CpuBackend("canonical-1", threads=1), limits=limits) as engine:
        yield engine


@contextmanager
def llm_scheduler() -> Iterator[Scheduler]:
    with LLM("qwen3-q", tier="t_cpu", slots=SLOTS, ctx=CTX, threads=1) as llm:
        yield llm.scheduler


@contextmanager
def run_scheduler() -> Iterator[Scheduler]:
    with open_engine() as opened:
        yield Answering(opened).scheduler


@contextmanager
def serve_scheduler() -> Iterator[Scheduler]:
    device = DeviceSettings(tier="t_cpu", threads=1)
    config = Config.for_model("qwen3-q", model={"slots": SLOTS, "ctx": CTX}, device=device)
    model = open_model(config.models[0], config, lambda: None)
    yield model.core.scheduler
    model.core.close()


@contextmanager
def sched_test_scheduler() -> Iterator[Scheduler]:
    settings = SimulationSettings(SLOTS, CTX)
    yield Simulation([], [Tenant("a")], settings, PREDICTED, lambda requests: None).scheduler


@contextmanager
def isolation_scheduler() -> Iterator[Scheduler]:
    with open_engine() as opened:
        yield MixServer(opened, {}, name="qwen3-q").scheduler


@contextmanager
def bench_scheduler() -> Iterator[Scheduler]:
    yield SchedulerLoad(SLOTS, 8).scheduler


CHANGED = {
    isolation_scheduler: [f"scheduler: slice_tokens {SLICE_TOKENS} (default 64)"],
    bench_scheduler: [
        f"scheduler: step_tokens {STEP_TOKENS} (default 512)"
    ],  # an arrival with its 512 tokens each step
}


@pytest.mark.parametrize(
    "front_end",
    [llm_scheduler, run_scheduler, serve_scheduler, sched_test_scheduler, isolation_scheduler, bench_scheduler],
)
def test_limits_are_the_defaults(front_end) -> None:  # type: ignore[no-untyped-def]
    with front_end() as scheduler:
        limits = scheduler.limits
        usual = SchedulerLimits(limits.slots, limits.ctx)
        assert describe_limit_changes(limits) == CHANGED.get(front_end, [])
        if front_end not in CHANGED:
            assert limits == usual
        assert (scheduler.cache.page_tokens, scheduler.cache.chunk_tokens) == (16, limits.step_tokens)
        assert limits.classes == CLASSES and limits.classes[Priority.INTERACTIVE].gap_ns == 30_000_000


def test_scheduler_step_is_one_engine_step() -> None:
    assert SchedulerLimits(SLOTS, CTX).step_tokens == SequenceLimits(CTX, SLOTS).step_tokens


def test_budget_of_the_library_reaches_the_scheduler() -> None:
    with LLM("qwen3-q", tier="t_cpu", slots=2, ctx=CTX, threads=1, gap_ms=50, first_token_ms=0) as llm:
        assert llm.scheduler.limits.classes == with_budgets(CLASSES, gap_ms=50, first_token_ms=0)


@pytest.mark.parametrize(("simulated", "limit"), [(False, 1_000_000_000), (True, None)])
def test_submissions_of_user_queues_are_bounded_on_a_gpu(simulated: bool, limit: int | None) -> None:
    with open_engine() as opened:
        opened.backend.spec = registry.spec("t2")
        opened.backend.device = replace(opened.backend.device, simulated=simulated)
        assert Answering(opened).scheduler.limits.submission_ns == limit
    assert registry.spec("t2").submission_seconds < SUSPEND_SECONDS
    assert not registry.spec("t1").submission_seconds, "KFD saves the waves of a long dispatch"
