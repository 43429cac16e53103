"""Timed programs: every dispatch alone, in order, with two readings of the tier's own clock, and the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.t1 import open_t1
from zinc_rt.backends.amd.t2 import open_t2
from zinc_rt.backends.base import Backend
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.backends.times import HOST_CLOCK, TimedDispatch, Times
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.op import Op
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.in_process import SimDriver

TICK_NS = 1000  # between two readings of a clock that counts its readings
OPENERS = {"t1": open_t1, "t2": open_t2}


def make_ticking_clock() -> Callable[[], int]:
    readings = itertools.count()
    return lambda: TICK_NS * next(readings)


@pytest.fixture
def counting_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated device's counter advances at each read by 100 ticks of 10 ns."""
    readings = itertools.count(1)
    monkeypatch.setattr(SimGpu, "gpu_counter", lambda self: 100 * next(readings))


def open_simulated(tier: str) -> Backend:
    driver = SimDriver(sanitizer="fast")
    opened: Backend = OPENERS[tier](
        driver, AmdOptions("canonical-1", find_kernel_set("gfx1201")), after=driver.close_all
    )
    return opened


@pytest.fixture(params=["t_cpu", "t_cpu_native", "t1", "t2"])
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_tier(tier: str) -> Backend:
    if tier == "t_cpu":
        return CpuBackend("canonical-1", clock_ns=make_ticking_clock())
    if tier in OPENERS:
        return open_simulated(tier)
    try:
        return open_backend(choose_tier(tier), "canonical-1")
    except UnsupportedError as error:
        pytest.skip(str(error))


@pytest.fixture
def engine(tier: str, counting_gpu: None) -> Iterator[Engine]:
    with Engine(read_gguf(list_embedded_pairs()[1].model), open_tier(tier), ctx=64) as engine:
        yield engine


def run_step(engine: Engine, *, timed: bool) -> tuple[np.ndarray, Times]:
    """Run the first tokens of a new sequence, then one more; return its logits and times."""
    engine.variants.timed = timed
    sequence = engine.open()
    engine.extend(sequence, [1, 2, 3], rows="last")
    output = engine.advance([(sequence, [4])], [0])
    logits = output.logits().copy()
    times = output.handle.variant.built.times()
    engine.release(sequence)
    return logits, times


@pytest.mark.rest(keep=1)
def test_timed_step_is_bit_identical_and_reports_every_node(engine: Engine) -> None:
    plain, none = run_step(engine, timed=False)
    timed, times = run_step(engine, timed=True)
    assert timed.tobytes() == plain.tobytes() and np.any(plain)
    assert none.dispatches == ()
    graph = engine.variants.fuse_graph(engine.graph("decode"))
    seen = [dispatch.node for dispatch in times.dispatches if dispatch.node is not None]
    wanted = [(node.op, node.outputs) for node in graph.nodes if node.op is not Op.BARRIER]
    assert list(dict.fromkeys((node.op, node.outputs) for node in seen)) == wanted
    assert all(dispatch.kernel for dispatch in times.dispatches) and list(times.wrong()) == []
    instrument = engine.backend.instrument
    assert instrument is None or instrument.findings() == []


@pytest.mark.rest(keep=1)
def test_node_times_cover_the_step_without_overlap(engine: Engine, tier: str) -> None:
    _, times = run_step(engine, timed=True)
    count = len(times.dispatches)
    for item, next_one in itertools.pairwise(times.dispatches):
        assert item.began_ns <= item.ended_ns <= next_one.began_ns
    if tier == "t_cpu_native":  # a clock of its own: nothing is known of it but its order
        assert 0 < sum(dispatch.nanoseconds for dispatch in times.dispatches) <= times.span_ns
        return
    assert {dispatch.nanoseconds for dispatch in times.dispatches} == {TICK_NS}
    assert times.span_ns == (2 * count - 1) * TICK_NS
    assert times.simulated == (tier in OPENERS)
    assert times.clock == HOST_CLOCK if tier == "t_cpu" else "simulated" in times.clock


@pytest.mark.rest(keep=1)
def test_second_replay_is_timed_separately(engine: Engine, tier: str) -> None:
    _, first = run_step(engine, timed=True)
    _, second = run_step(engine, timed=True)
    assert second.dispatches[0].began_ns > first.dispatches[-1].ended_ns
    assert [dispatch.kernel for dispatch in first.dispatches] == [
        dispatch.kernel for dispatch in second.dispatches
    ]


@pytest.mark.rest
def test_stalled_counter_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimGpu, "gpu_counter", lambda self: 7)
    with Engine(read_gguf(list_embedded_pairs()[1].model), open_simulated("t1"), ctx=64) as engine:
        _, times = run_step(engine, timed=True)
    assert "does not advance" in next(times.wrong())


def test_backwards_clock_is_reported() -> None:
    back = Times("a clock", False, (TimedDispatch(None, "one", 10, 20), TimedDispatch(None, "two", 19, 30)))
    assert "dispatch 1, two" in next(back.wrong())
    assert list(Times("a clock", False, ()).wrong()) == []


@pytest.mark.rest
def test_timed_variant_releases_its_memory() -> None:
    backend = open_simulated("t1")
    with Engine(read_gguf(list_embedded_pairs()[1].model), backend, ctx=64) as engine:
        run_step(engine, timed=True)
        names = [block.region.name for block in backend.memory.blocks]  # type: ignore[attr-defined]
        assert any(name.startswith("times of") for name in names)
        engine.variants.unload()
        names = [block.region.name for block in backend.memory.blocks]  # type: ignore[attr-defined]
        assert not any(name.startswith("times of") for name in names)
