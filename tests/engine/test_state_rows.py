"""Rows of recurrent state: a fresh sequence begins at the zero row, a snapshot and a restore copy nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.runner import Runner, StepBlock
from zinc_rt.engine.variants import EngineOptions, Transform, Variants
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import UsageError
from zinc_rt.ir.graph import OpGraph, Stage
from zinc_rt.ir.op import Op
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.sched.plan import StepPlan

CTX, SLOTS, ROWS = 64, 3, 6
PREFIX = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]  # one page
FIRST, SECOND = [2, 7, 1, 8, 2, 8], [1, 6, 1, 8]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GGUFFile]:
    def create_model(architecture: str) -> GGUFFile:
        path = tmp_path_factory.mktemp("rows") / f"{architecture}.gguf"
        write_tiny(path, architecture, hidden=32)
        return read_gguf(path)

    return create_model


@dataclass(frozen=True)
class StepPart:
    """A sequence's part of a step: tokens from position `start` in a slot, with its `pages`."""

    slot: int
    tokens: list[int]
    start: int
    source: int
    target: int
    pages: tuple[int, ...]


class StepRecorder:
    """Run steps in the order of a scheduler and read back every row of logits."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def run(self, *parts: StepPart, stage: Stage = "prefill") -> list[np.ndarray]:
        """Logits of every token of each part."""
        limits = self.runner.variants.limits
        lengths = [len(part.tokens) for part in parts]
        total = sum(lengths)
        plan = StepPlan(limits.step_tokens, limits.slots, 1, most_rows=limits.step_tokens)
        for part in parts:
            pages = {
                part.slot * limits.pages_per_slot + location: page for location, page in enumerate(part.pages)
            }
            plan.table_changes[0].update(pages)
            index = plan.add_sequence(part.slot, part.tokens, part.start, (part.source, part.target))
            for token in range(len(part.tokens)):
                plan.add_row(index + token, part.slot, part.start + token + 1)
        block = self.runner.block(stage, tokens=total, sequences=len(parts), rows=total, entries=8)
        block.fill(plan)
        logits = self.runner.collect(self.runner.submit(block)).logits().copy()
        return np.split(logits, np.cumsum(lengths)[:-1])


@contextmanager
def open_runner(gguf: GGUFFile, tier: str, transform: Transform | None = None) -> Iterator[Runner]:
    simulated = {"device": "sim", "sanitizer": "full"} if tier in ("t1", "t2") else {}
    backend = open_backend(choose_tier(tier, **simulated), "canonical-1")
    limits = SequenceLimits(ctx=CTX, slots=SLOTS, state_rows=ROWS, rows=32)
    try:
        yield Runner(Variants(gguf, backend, limits, EngineOptions(transform=transform)))
    finally:
        backend.close()


@contextmanager
def record_steps(gguf: GGUFFile, tier: str, *, disjoint: bool = True) -> Iterator[StepRecorder]:
    def share_rows(graph: OpGraph) -> OpGraph:
        """The same graph, but rows of sequences may overlap."""
        nodes = (
            replace(node, attrs={k: v for k, v in node.attrs.items() if k != "disjoint"}) for node in graph.nodes
        )
        return replace(graph, nodes=tuple(nodes))

    with open_runner(gguf, tier, None if disjoint else share_rows) as runner:
        yield StepRecorder(runner)
        if (instrument := runner.variants.backend.instrument) is not None:
            assert instrument.findings() == []


def forward_alone(gguf: GGUFFile, tokens: list[int]) -> np.ndarray:
    with Engine(gguf, CpuBackend("canonical-1", threads=1), ctx=CTX) as engine:
        return engine.forward(tokens)


@pytest.mark.parametrize(
    ("architecture", "tier", "disjoint"),
    [
        *(("qwen35moe", tier, True) for tier in ("t_cpu", "t_cpu_native", "t1", "t2")),
        *(("qwen35moe", tier, False) for tier in ("t_cpu", "t_cpu_native", "t1")),  # by a temporary
        *(("mamba", tier, True) for tier in ("t_cpu", "t_cpu_native")),  # loads and stores its rows
    ],
)
@pytest.mark.rest(keep=1)
def test_restored_checkpoint_matches_recomputed_prefix(
    architecture: str, tier: str, disjoint: bool, tiny_model: Callable[[str], GGUFFile]
) -> None:
    gguf = tiny_model(architecture)
    first, second = (forward_alone(gguf, PREFIX + tail)[len(PREFIX) :] for tail in (FIRST, SECOND))
    with record_steps(gguf, tier, disjoint=disjoint) as steps:
        # slot 0 begins at the zero row, and goes on into another row than the prefix's: row 1 is the checkpoint
        steps.run(StepPart(0, PREFIX, 0, source=0, target=1, pages=(0,)))
        (got,) = steps.run(StepPart(0, FIRST, 16, source=1, target=2, pages=(0, 1)))
        assert got.tobytes() == first.tobytes()
        # two others restore it in one step, beside a fresh one and slot 0's next token
        again, other, fresh = steps.run(
            StepPart(0, FIRST, 16, source=1, target=3, pages=(0, 2)),
            StepPart(1, SECOND, 16, source=1, target=4, pages=(0, 3)),
            StepPart(2, PREFIX, 0, source=0, target=5, pages=(4,)),
        )
        assert again.tobytes() == first.tobytes() and other.tobytes() == second.tobytes()
        assert fresh.tobytes() == forward_alone(gguf, PREFIX).tobytes()
        # nothing wrote the checkpoint or the zero row: both serve once more
        (once_more,) = steps.run(StepPart(1, FIRST, 16, source=1, target=4, pages=(0, 3)))
        assert once_more.tobytes() == first.tobytes()
        (fresh,) = steps.run(StepPart(2, PREFIX, 0, source=0, target=5, pages=(4,)))
        assert fresh.tobytes() == forward_alone(gguf, PREFIX).tobytes()


@pytest.mark.parametrize(
    ("tier", "stage", "rows", "message"),
    [
        ("t_cpu_native", "prefill", ((1, 4), (2, 4)), "row 4 is the target of two sequences, 0 and 1"),
        ("t1", "decode", ((1, 4), (4, 5)), "row 4 is the target of sequence 0 and the source of 1"),
    ],
)
@pytest.mark.rest(keep=1)
def test_overlapping_rows_are_refused_and_reported_in_kernels(
    tier: str,
    stage: Stage,
    rows: tuple[tuple[int, int], ...],
    message: str,
    tiny_model: Callable[[str], GGUFFile],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every tier refuses the step. Without that check, the sanitizer reports the kernels that race: in a decode
    step those of the fused forms."""
    parts = [
        StepPart(slot, [1 + slot], 0, source=source, target=target, pages=(slot,))
        for slot, (source, target) in enumerate(rows)
    ]
    with open_runner(tiny_model("qwen35moe"), tier) as runner:
        steps = StepRecorder(runner)
        with pytest.raises(UsageError, match=f"rows of recurrent state: {message}"):
            steps.run(*parts, stage=stage)
        instrument = runner.variants.backend.instrument
        if instrument is None:
            return
        assert instrument.findings() == []
        (variant,) = [item for table in runner.variants._built.values() for item in table.values()]
        fused = {node.op for node in variant.graph.nodes if node.attrs.get("disjoint")}
        assert fused == {Op.MATMUL_FUSED_CONV1D_IDS, Op.SSM_DELTA_NET_INPLACE_IDS}
        monkeypatch.setattr(StepBlock, "check_rows", lambda block: None)
        steps.run(*parts, stage=stage)
        raced = {finding.kernel for finding in instrument.findings() if "race" in finding.text}
        assert {"conv1d", "delta_step"} <= raced
