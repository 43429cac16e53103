"""Hundreds of requests through four slots of a model on T-CPU: no page, slot, row or byte is lost."""

from __future__ import annotations

import gc

import pytest
from support import Counts

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.mixes.driver import MixDriver
from zinc_rt.sched.mixes.mix import ROWS_A_SLOT, SLOTS, STEP_TOKENS, draw_request_mix
from zinc_rt.sched.request import Request
from zinc_rt.validate.isolation.server import MixServer

pytestmark = pytest.mark.rest

AUDIT_EVERY = 1000  # steps
KINDS = {"park", "evict", "hold", "cancel"}


@pytest.mark.parametrize("stem", ["qwen35moe-q"])
def test_long_run_of_requests_is_stable(stem: str, slow_counts: Counts) -> None:
    count = slow_counts(10, 2000)
    limits = SequenceLimits(96, SLOTS, state_rows=1 + ROWS_A_SLOT * SLOTS, step_tokens=STEP_TOKENS)
    with Engine(read_gguf(FOLDER / f"{stem}.gguf"), CpuBackend("canonical-1"), limits=limits) as engine:
        mix = draw_request_mix(11, count, vocab=engine.model.vocab, ctx=96)
        server = MixServer(engine, {}, name=stem)
        sizes: list[int] = []

        def record_size(step: int) -> None:
            kept = engine.variants.resident._kept
            sizes.append(sum(buffer.size_bytes for buffer in kept.values()))

        outcome = MixDriver(mix, server, record_size, audit_every=AUDIT_EVERY).run()
        assert not outcome.broken and not outcome.stuck and not server.shadow.findings
        assert len(outcome.ended) == sum(request.sampling.n for request in mix.requests)
        for request in mix.requests:
            for choice in range(request.sampling.n):
                result = len(outcome.delivered.get((request.number, choice), []))
                whole = result == request.sampling.max_tokens
                assert whole or outcome.ended[request.number, choice] == "cancelled"
        assert max(sizes) == sizes[-1] == sizes[len(sizes) // 2], "what is kept on the device does not grow"
        assert not server.scheduler.live and not server.scheduler.check()
        if count > 100:
            assert set(outcome.events) == KINDS and server.scheduler.cache.prefix.counts.hit > 0
        server.now_ns += 3600 * 1_000_000_000  # what waited for its age lets go
        server.step()
        gc.collect()
        alive = [item for item in gc.get_objects() if isinstance(item, Request)]
        assert len(alive) <= SLOTS, "requests that ended are nobody's"
