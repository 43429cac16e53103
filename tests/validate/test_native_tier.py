"""t_cpu_native on whole models: every node has the oracle's bits, however work is cut and whoever does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.cpu.library import Library, build_library
from zinc_rt.backends.cpu.native import NativeBackend
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.backends.cpu.read_ahead import PageRange, ReadAhead
from zinc_rt.backends.cpu.tasks import TaskSplitting
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES, CAUSAL
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import Node
from zinc_rt.kernels.native.table import ORDERINGS
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.validate.command import main

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 97, 93, 2, 3, 84, 62]  # more than a panel of 16
CTX = 64
Values = list[tuple[str, np.ndarray]]


@cache
def native_library() -> Library:
    try:
        return build_library()
    except UnsupportedError as error:
        pytest.skip(str(error))


@contextmanager
def native_engine(
    gguf: GGUFFile,
    ordering: str,
    *,
    threads: int = 2,
    splitting: TaskSplitting = TaskSplitting(),  # noqa: B008 - frozen
    read_ahead: ReadAhead | None = None,
    slots: int = 1,
) -> Iterator[Engine]:
    spec = registry.spec("t_cpu_native")
    backend = NativeBackend(
        spec, ordering, native_library(), threads=threads, splitting=splitting, read_ahead=read_ahead
    )
    with Engine(gguf, backend, ctx=CTX, slots=slots) as engine:
        yield engine


def tapped_values(engine: Engine, tokens: list[int], prefill: str = "batched") -> Values:
    """Return every node's results in graph order, then the logits."""
    values: Values = []

    def record_value(node: Node, name: str, array: np.ndarray) -> None:
        values.append((f"{node.op.name} {name}", array.copy()))

    logits = engine.forward(tokens, tap=record_value, prefill=prefill)  # type: ignore[arg-type]
    return [*values, ("logits", logits)]


def assert_same(got: Values, values: Values) -> None:
    """The first value that parts is named. A NaN equals any NaN."""
    assert [name for name, _ in got] == [name for name, _ in values]
    for (name, mine), (_, theirs) in zip(got, values, strict=True):
        equal = mine.view(np.uint32) == theirs.view(np.uint32)
        if mine.dtype == np.float32:
            equal |= np.isnan(mine) & np.isnan(theirs)
        assert equal.all(), f"{name}: {np.count_nonzero(~equal)} of {equal.size} differ"


@pytest.fixture(scope="module")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GGUFFile]:
    @cache
    def create_model(architecture: str) -> GGUFFile:
        path = tmp_path_factory.mktemp("model") / f"{architecture}.gguf"
        write_tiny(path, architecture, quant="q", hidden=256 if architecture != "mamba" else 64)
        return read_gguf(path)

    return create_model


_KNOWN: dict[tuple[Path, str], Values] = {}


def oracle_values(gguf: GGUFFile, ordering: str) -> Values:
    """Return the oracle's values, computed once per process for each model and ordering."""
    key = (gguf.path, ordering)
    if key not in _KNOWN:
        with Engine(gguf, CpuBackend(ordering), ctx=CTX) as engine:
            _KNOWN[key] = tapped_values(engine, TOKENS)
    return _KNOWN[key]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.slow(keep=12)
def test_every_node_matches_oracle_bits(
    architecture: str, ordering: str, tiny_models: Callable[[str], GGUFFile]
) -> None:
    gguf = tiny_models(architecture)
    values = oracle_values(gguf, ordering)
    with native_engine(gguf, ordering) as engine:
        assert_same(tapped_values(engine, TOKENS), values)
    assert np.isfinite(values[-1][1]).all() and values[-1][1].std() > 0.1


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize("architecture", CAUSAL)
def test_token_by_token_gives_same_logits_as_one_pass(
    architecture: str, tiny_models: Callable[[str], GGUFFile]
) -> None:
    gguf = tiny_models(architecture)
    with native_engine(gguf, "canonical-1-q8") as engine:
        batched = engine.forward(TOKENS)
        stepwise = engine.forward(TOKENS, prefill="stepwise")
    assert np.array_equal(batched.view(np.uint32), stepwise.view(np.uint32))


WAYS = [
    (1, TaskSplitting()),
    (5, TaskSplitting()),
    (2, TaskSplitting(least=1)),
    (3, TaskSplitting(least=7, shuffle=1)),
    (2, TaskSplitting(least=2, shuffle=6)),
    (5, TaskSplitting(least=1, shuffle=9)),
]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("threads", "splitting"), WAYS)
@pytest.mark.parametrize("architecture", ["qwen35moe", "gemma4moe", "deepseek2", "mamba"])
def test_results_do_not_depend_on_threads_claims_or_order(
    architecture: str, threads: int, splitting: TaskSplitting, tiny_models: Callable[[str], GGUFFile]
) -> None:
    """Shuffled claims find a missing barrier: what should have waited runs first."""
    gguf = tiny_models(architecture)
    values = oracle_values(gguf, "canonical-1-q8")
    with native_engine(gguf, "canonical-1-q8", threads=threads, splitting=splitting) as engine:
        assert_same(tapped_values(engine, TOKENS), values)


@pytest.mark.parametrize("architecture", ["qwen3", "qwen35moe"])
def test_batched_sequences_match_solo_bits(architecture: str, tiny_models: Callable[[str], GGUFFile]) -> None:
    prompts = [TOKENS[:5], TOKENS[5:6], TOKENS[6:]]
    with native_engine(tiny_models(architecture), "canonical-1-q8", slots=3) as engine:
        alone = [engine.forward(prompt, rows="last")[-1] for prompt in prompts]
        sequences = [engine.open() for _ in prompts]
        ends = np.cumsum([len(prompt) for prompt in prompts]) - 1
        together = engine.step(zip(sequences, prompts, strict=True), ends.tolist())
    assert np.array_equal(np.stack(alone).view(np.uint32), together.view(np.uint32))


def test_model_exceeding_memory_is_prefetched_with_same_bits(tiny_models: Callable[[str], GGUFFile]) -> None:
    gguf, asked = tiny_models("qwen3"), list[PageRange]()
    ahead = ReadAhead(
        memory=lambda: 1, advise=asked.append, budget_bytes=1 << 16, least_bytes=1, look_seconds=1e-4
    )
    with native_engine(gguf, "canonical-1", read_ahead=ahead) as engine:
        assert_same(tapped_values(engine, TOKENS), oracle_values(gguf, "canonical-1"))
        for _ in range(20):
            engine.forward(TOKENS[:4], prefill="stepwise")
    assert len({item.address for item in asked}) > 3


@pytest.mark.rest
def test_validate_compares_native_tier_with_oracle(capsys: pytest.CaptureFixture[str]) -> None:
    native_library()
    model = str(next(pair.model for pair in list_embedded_pairs() if "qwen3-q" in pair.model.name))
    assert main(["--tiers", "t_cpu_native,t_cpu", "--model", model]) == 0
    output = capsys.readouterr().out
    assert any("t_cpu_native" in line and "bit-exact" in line for line in output.splitlines())
