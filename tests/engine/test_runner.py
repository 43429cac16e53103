"""The runner: one write and one replay a step, tokens from the device, deadlines, memory given back."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import Counts

from zinc_rt.backends import registry
from zinc_rt.backends.base import Device
from zinc_rt.backends.cpu.oracle import CpuBackend, NodeFailed
from zinc_rt.engine.answering import Answer, Answering
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.runner import Deadlines
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.exec import Buffer, DeadlineMissed, InFlight, Observer
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import UsageError
from zinc_rt.mem.plan import STEP
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.sampling import Sampling

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8]  # more than one page


@pytest.fixture(scope="module")
def qwen3() -> GGUFFile:
    return read_gguf(FOLDER / "qwen3-q.gguf")


@pytest.fixture(scope="module")
def hybrid_model(tmp_path_factory: pytest.TempPathFactory) -> GGUFFile:
    path = tmp_path_factory.mktemp("runner") / "qwen35.gguf"
    write_tiny(path, "qwen35", hidden=32)
    return read_gguf(path)


class WriteRecorder(Observer):
    """Count writes of step blocks only, because opening a slot again also zeroes its state."""

    def __init__(self) -> None:
        self.bytes: list[int] = []

    def wrote(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        if buffer.name == STEP:
            assert not offset_bytes
            self.bytes.append(data.nbytes)


@pytest.fixture(params=["qwen3", "hybrid_model"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    gguf = request.getfixturevalue(request.param)
    with Engine(
        gguf,
        CpuBackend("canonical-1", threads=1),
        ctx=64,
        slots=3,
        options=EngineOptions(observers=(WriteRecorder(),)),
    ) as engine:
        yield engine


def test_step_is_one_write_and_one_replay(engine: Engine) -> None:
    sequence = engine.open()
    engine.extend(sequence, PROMPT, rows="last")
    for token in (5, 6, 7):
        engine.advance([(sequence, [token])], [0])
    submission = engine.runner.submission
    assert (submission["steps"], submission["host_writes"], submission["fast"] + submission["careful"]) == (
        4,
        4,
        4,
    )
    observer: Any = engine.variants.observers[0]
    assert len(observer.bytes) == 4


def test_device_argmax_tokens_are_the_most_likely(engine: Engine) -> None:
    sequence = engine.open()
    output = engine.advance([(sequence, PROMPT)], [0, len(PROMPT) - 1])
    assert output.tokens.tolist() == output.logits().argmax(axis=-1).tolist()
    assert output.nonfinite.tolist() == [-1, -1]


def step_one_token(engine: Engine, changes: dict[int, int], *, tokens: int = 1) -> StepPlan:
    """A step of slot 0 from position 0 on, with one row of logits."""
    plan = StepPlan(engine.limits.step_tokens, 1, 1)
    plan.table_changes[0].update(changes)
    plan.add_sequence(0, [0] * tokens, 0, (0, 1))
    plan.add_row(tokens - 1, 0, tokens)
    return plan


def greedy_answer(engine: Engine, max_tokens: int) -> Answer:
    """Return the scheduler's greedy answer to PROMPT."""
    asking = Answering(engine)
    asked = asking.submit(PROMPT, Sampling(max_tokens=max_tokens, ignore_eos=True))
    while not asked.done:
        asking.step()
    (answer,) = asked.answers
    return answer


def step_three_sequences(engine: Engine, stage: str) -> bytes:
    """Return the logits of one token for each of three sequences of different lengths, from that stage's graph."""
    runner, block = engine.runner, engine.runner.block
    sequences = [engine.open() for _ in range(3)]
    for length, sequence in enumerate(sequences, 3):
        engine.extend(sequence, PROMPT[:length], rows="last")
    with pytest.MonkeyPatch.context() as patch:
        if stage == "prefill":
            patch.setattr(runner, "block", lambda asked, **options: block("prefill", **options))
        output = engine.advance([(sequence, [7]) for sequence in sequences], [0, 1, 2])
    assert output.handle.variant.graph.stage == stage
    logits = output.logits().tobytes()
    for sequence in sequences:
        engine.release(sequence)
    return logits


@pytest.mark.rest(keep=1)
def test_one_token_per_sequence_step_is_decode_and_matches_prefill_bits(engine: Engine) -> None:
    assert step_three_sequences(engine, "decode") == step_three_sequences(engine, "prefill")


@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.rest
def test_prefill_and_decode_are_bit_identical_on_simulated_card(tier: str, hybrid_model: GGUFFile) -> None:
    with Engine(hybrid_model, CpuBackend("canonical-1", threads=1), ctx=64, slots=3) as engine:
        want = step_three_sequences(engine, "decode")
    backend = open_backend(choose_tier(tier, "sim"), "canonical-1")
    with Engine(hybrid_model, backend, ctx=64, slots=3) as engine:
        assert step_three_sequences(engine, "decode") == step_three_sequences(engine, "prefill") == want
        assert backend.instrument is not None and backend.instrument.findings() == []


def test_input_blocks_alternate_between_steps(engine: Engine) -> None:
    runner = engine.runner
    block = runner.block("decode", tokens=1, sequences=1, rows=1)
    other = runner.block("decode", tokens=1, sequences=1, rows=1)
    assert block.variant is other.variant and block.raw is not other.raw
    assert runner.block("decode", tokens=1, sequences=1, rows=1) is block


def test_step_must_be_collected_before_the_next_submit(engine: Engine) -> None:
    runner = engine.runner
    block = runner.fill(step_one_token(engine, {0: 0}))
    handle = runner.submit(block)
    with pytest.raises(InFlight, match="a step is in flight"):
        runner.submit(runner.block("decode", tokens=1, sequences=1, rows=1))
    runner.collect(handle)
    runner.collect(runner.submit(runner.block("decode", tokens=1, sequences=1, rows=1)))


@pytest.mark.rest(keep=1)
def test_failed_step_does_not_block_the_next(engine: Engine) -> None:
    runner = engine.runner
    block = runner.fill(step_one_token(engine, {1 << 20: 0}))
    with pytest.raises(NodeFailed, match="TABLE_STORE: entry 1048576"):
        runner.collect(runner.submit(block))
    engine.forward(PROMPT)


@pytest.mark.rest(keep=1)
def test_page_is_sent_to_the_device_once(engine: Engine) -> None:
    if not any(spec.role == "table" for spec in engine.model.graph.buffers.values()):
        pytest.skip("no attention, no pages")
    sequence, counts = engine.open(), []
    for token in range(35):
        counts.append(engine.advance([(sequence, [token])], [0]).handle.counts[3])
    assert [index for index, count in enumerate(counts) if count] == [0, 16, 32]
    assert max(counts) == 1


@pytest.mark.rest
def test_logits_buffer_is_sized_by_requested_rows(qwen3: GGUFFile) -> None:
    with Engine(qwen3, CpuBackend("canonical-1", threads=1), ctx=600) as engine:
        output = engine.advance([(engine.open(), [1] * 512)], [511])
        plan = output.handle.variant.program.plan
        assert plan.placements["request[slot].logits"].size_bytes == 4 * engine.model.vocab


def test_greedy_generation_reads_no_logits(qwen3: GGUFFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(qwen3, CpuBackend("canonical-1", threads=1), ctx=64) as engine:
        read: list[int] = []
        monkeypatch.setattr("zinc_rt.engine.runner.StepOutput.logits", lambda output: read.append(1))
        assert len(greedy_answer(engine, 5).token_ids) == 5 and not read


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_largest_logit_ends_generation(qwen3: GGUFFile, value: float) -> None:
    """Greedy steps and steps that sample agree; a logit of minus infinity is only never drawn."""

    class CorruptingBackend(CpuBackend):
        def build(self, program: Any, buffers: Any) -> Any:
            built = super().build(program, buffers)
            if program.graph.stage != "decode":
                return built

            def corrupt_logits(code: Any) -> Any:
                def run_corrupted(*operands: Any, **attrs: Any) -> Any:
                    logits = code(*operands, **attrs)
                    logits[:, 7] = value
                    return logits

                return run_corrupted

            calls = [
                replace(call, code=corrupt_logits(call.code)) if call.node.label == "result_output" else call
                for call in built.calls
            ]
            return replace(built, calls=tuple(calls))

    with Engine(qwen3, CorruptingBackend("canonical-1", threads=1), ctx=64) as engine:
        llm = Answering(engine)
        for temperature in (0.0, 1.0):
            sampling = Sampling(max_tokens=3, temperature=temperature, seed=1, ignore_eos=True)
            (answer,) = llm.submit(PROMPT, sampling).answers
            while not answer.ended:
                llm.step()
            if value == -math.inf:
                assert len(answer.token_ids) == 3 and 7 not in answer.token_ids[1:] and answer.ended == "length"
            else:
                assert len(answer.token_ids) == 1 and answer.ended == "logits_not_finite"


# --- deadlines ---------------------------------------------------------------------------------------------


def test_missed_step_deadline_prints_one_line(qwen3: GGUFFile) -> None:
    message = r"t_cpu, stream main: fence \d not reached within 0\.0001 s"
    with (
        Engine(
            qwen3, CpuBackend("canonical-1", threads=1), ctx=600, options=EngineOptions(timeout_seconds=1e-4)
        ) as engine,
        pytest.raises(DeadlineMissed, match=message),
    ):
        engine.advance([(engine.open(), [1] * 500)], [499])


@pytest.mark.rest
def test_slow_step_without_deadline_reports_progress(qwen3: GGUFFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.engine.runner.SLOW_SECONDS", 0.01)
    lines: list[str] = []
    with Engine(
        qwen3, CpuBackend("canonical-1", threads=1), ctx=600, options=EngineOptions(slow=lines.append)
    ) as engine:
        engine.advance([(engine.open(), [1] * 500)], [499])
    assert lines and lines[0].startswith("step 1 has taken ") and "500 tokens" in lines[0]


class _Backend:
    spec = registry.spec("t1")

    def __init__(self, device: Device) -> None:
        self.device = device


def test_deadlines_depend_on_the_device(qwen3: GGUFFile) -> None:
    with Engine(qwen3, CpuBackend("canonical-1", threads=1), ctx=64) as engine:
        variant = engine.advance([(engine.open(), PROMPT)], [0]).handle.variant
        simulated: Any = _Backend(Device("sim", "gfx1201", simulated=True))
        silicon: Any = _Backend(Device("card", "gfx1201", memory_bytes_per_second=1e3))
        unknown: Any = _Backend(Device("card", "gfx1201"))
        some_gpu: Any = _Backend(Device("card", "vulkan"))
        some_gpu.spec = registry.spec("vulkan")
        software: Any = _Backend(Device("lavapipe", "vulkan", software=True))
        counts = (4, 1, 1, 0)
        assert Deadlines().of(engine.backend, variant, counts) is None
        assert Deadlines().of(simulated, variant, counts) == 60.0
        variant.ran = False
        assert Deadlines().of(simulated, variant, counts) == 600.0
        assert Deadlines().of(unknown, variant, counts) == 2.0
        assert Deadlines().of(some_gpu, variant, counts) == 60.0
        assert Deadlines().of(software, variant, counts) is None
        weights = sum(
            item.size_bytes
            for name, item in variant.program.plan.allocations.items()
            if name.startswith("weight/")
        )
        assert Deadlines().of(silicon, variant, counts) == pytest.approx(50 * 4 * weights / 1e3)
        assert Deadlines(7.0).of(silicon, variant, counts) == 7.0


# --- ownership ---------------------------------------------------------------------------------------------


class CountingBackend(CpuBackend):
    """T-CPU that knows what it has given out."""

    def __init__(self) -> None:
        super().__init__("canonical-1", threads=1)
        self.held: dict[int, int] = {}
        self.built = 0

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        buffer = super().alloc(size_bytes, heap, name, zeroed=zeroed)
        self.held[id(buffer)] = size_bytes
        return buffer

    def free(self, buffer: Buffer) -> None:
        self.held.pop(id(buffer), None)
        super().free(buffer)

    def build(self, program: Any, buffers: Any) -> Any:
        self.built += 1
        return super().build(program, buffers)

    def unload(self, executable: Any) -> None:
        self.built -= 1
        super().unload(executable)


@pytest.mark.rest
def test_evictions_leak_no_memory(
    hybrid_model: GGUFFile, monkeypatch: pytest.MonkeyPatch, slow_counts: Counts
) -> None:
    monkeypatch.setattr("zinc_rt.engine.resident.MAX_VARIANTS", 2)
    with Engine(hybrid_model, CountingBackend(), ctx=40) as engine:
        backend: Any = engine.backend
        variants = engine.variants
        keys = [(16, 1, 1), (16, 1, 16), (1, 1, 1)]
        for key in keys:
            variants.get("prefill", key)
        before = sorted(backend.held.values()), backend.built
        for number in range(slow_counts(100, 1000)):
            variants.get("prefill", keys[number % 3])
        assert backend.built == before[1] == 2
        for key in keys[-2:]:
            variants.get("prefill", key)
        assert sorted(backend.held.values()) == before[0]


def test_whole_graphs_are_evicted_at_the_limit(hybrid_model: GGUFFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that taps, injects and decodes keeps as many graphs as it is allowed to."""
    monkeypatch.setattr("zinc_rt.engine.variants.MAX_GRAPHS", 2)
    with Engine(hybrid_model, CountingBackend(), ctx=40) as engine:
        backend: Any = engine.backend
        want = engine.forward(PROMPT).tobytes()
        value = {"l_out-0": np.ones((len(PROMPT), 32), np.float32)}
        for _ in range(3):
            engine.forward(PROMPT, tap=lambda node, name, array: None)
            engine.forward(PROMPT, inject=value)
            engine.forward(PROMPT[:1])
            assert engine.forward(PROMPT).tobytes() == want
            assert backend.built == 2


@pytest.mark.rest
def test_reloaded_model_is_bit_identical(hybrid_model: GGUFFile) -> None:
    with Engine(hybrid_model, CountingBackend(), ctx=40) as engine:
        backend: Any = engine.backend
        want = engine.forward(PROMPT).tobytes()
        for _ in range(20):
            engine.unload()
            assert not backend.held and not backend.built
            assert engine.forward(PROMPT).tobytes() == want


def test_unload_with_open_sequence_or_running_step_is_rejected(engine: Engine) -> None:
    sequence = engine.open()
    with pytest.raises(UsageError, match="1 sequences are still open"):
        engine.unload()
    engine.release(sequence)
    runner = engine.runner
    handle = runner.submit(runner.fill(step_one_token(engine, {0: 0}, tokens=16)))
    if not handle.fence.done():
        with pytest.raises(InFlight, match=r"cannot unload: a replay of .* is in flight"):
            engine.unload()
    runner.collect(handle)
    engine.unload()


class UnfinishedBackend(CpuBackend):
    """Submitted work waits until it is released."""

    def __init__(self) -> None:
        super().__init__("canonical-1", threads=1)
        self.go = threading.Event()
        self.go.set()

    def _run(self, variant: Any) -> None:
        self.go.wait()
        super()._run(variant)


def test_arena_is_used_by_one_variant_at_a_time(qwen3: GGUFFile) -> None:
    with Engine(qwen3, UnfinishedBackend(), ctx=64) as engine:
        backend: Any = engine.backend
        sequence = engine.open()
        large = engine.advance([(sequence, PROMPT)], [0]).handle.variant
        small = engine.advance([(sequence, [1])], [0]).handle.variant
        backend.go.clear()
        fence = small.submit(engine.runner.stream)
        with pytest.raises(InFlight, match="another variant is using the shared arena"):
            large.submit(engine.runner.stream)
        backend.go.set()
        fence.wait(10.0)
        large.submit(engine.runner.stream).wait(10.0)


def test_unobserved_variants_share_an_arena_and_tapped_ones_do_not(qwen3: GGUFFile) -> None:
    with Engine(qwen3, CpuBackend("canonical-1", threads=1), ctx=64) as engine:
        sequence = engine.open()
        large = engine.advance([(sequence, PROMPT)], [0]).handle.variant
        small = engine.advance([(sequence, [1])], [0]).handle.variant
        tapped = engine.advance([(sequence, [1])], [0], tap=lambda node, name, array: None).handle.variant
        assert large is not small and large.arena is small.arena and large.arena is not None
        assert tapped.arena is None
    with Engine(
        qwen3, CpuBackend("canonical-1", threads=1), ctx=64, options=EngineOptions(share_arenas=False)
    ) as engine:
        sequence = engine.open()
        apart = [engine.advance([(sequence, tokens)], [0]).handle.variant for tokens in (PROMPT, [1])]
        assert [variant.arena for variant in apart] == [None, None]
