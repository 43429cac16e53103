"""A tier with one thing wrong: bisect names that node, in few replays, and the node alone shows it again."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pytest
from planted import (
    Plant,
    PlantedBackend,
    bit_flipped,
    experts_swapped,
    instead,
    left_out,
    one_position_late,
    overlapping,
    table_shifted,
    written_nowhere,
)
from replay_runs import recorded

from zinc_rt.backends import registry
from zinc_rt.backends.cpu.oracle import BoundCall, CpuBackend, CpuVariant
from zinc_rt.devices import ORACLE
from zinc_rt.exec import Buffer
from zinc_rt.lower import Call, Program
from zinc_rt.replay.bisect import bisect
from zinc_rt.replay.repro import emit_repro
from zinc_rt.replay.run import replay


@dataclass(frozen=True, slots=True)
class Case:
    """`node` is the planted one, or the first that reads what was planted."""

    name: str
    model: str
    node: str
    plant: Plant

    def __str__(self) -> str:
        return f"{self.name}: {self.node} of {self.model}"


TABLES = ("constant.rope.cos", "constant.rope.sin")
CASES = [
    Case("wrong constant", "qwen3-q", "attn_norm-1", instead("attn_norm-1", eps=1e-3)),
    Case("stale buffer", "qwen3-q", "ffn_swiglu-2", left_out("ffn_swiglu-2")),
    Case("dropped write of keys", "qwen3-q", "kv_write-1", written_nowhere("kv_write-1")),
    Case("one position late", "qwen3-q", "Kcur-2", one_position_late("Kcur-2")),
    Case("wrong rope table", "qwen3-q", "Qcur-0", table_shifted(*TABLES)),
    Case("flipped bit", "qwen3-q", "Vcur-1", bit_flipped("model.attn.v_weight[1]", 40, 1)),
    Case("swapped experts", "qwen35moe-q", "ffn_moe_logits-1", experts_swapped("ffn_moe_logits-1")),
    Case(
        "flipped bit of a recurrent layer", "qwen35moe-q", "beta-1", bit_flipped("model.ssm.beta_weight[1]", 70, 3)
    ),
]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("logs")

    @cache
    def log(model: str) -> Path:
        return recorded(folder / f"{model}.zlog", model)

    return log


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_planted_node_is_named_and_shows_it_alone(case: Case, logs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    planted = partial(PlantedBackend, plant=case.plant)
    log = logs(case.model)
    assert not replay(log, planted).equal
    found = bisect(log, planted)
    assert found.where is not None and found.where.label == case.node, found.text
    assert found.replays <= found.allowed and found.where.differing > 0

    emitted = emit_repro(log, found, tmp_path / "repro", planted)
    alone = replay(emitted.log, planted)
    assert alone.differences and alone.differences[0].label == case.node
    assert replay(emitted.log, ORACLE).equal


def test_the_emitted_test_fails_with_the_defect_and_passes_without(
    logs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    planted = partial(PlantedBackend, plant=CASES[0].plant)
    emitted = emit_repro(logs("qwen3-q"), bisect(logs("qwen3-q"), planted), tmp_path, planted)
    spec = importlib.util.spec_from_file_location("emitted", emitted.test)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "choose_tier", lambda *names, **options: planted)
    with pytest.raises(AssertionError, match="attn_norm-1"):
        module.test_the_node_has_the_bits_of_the_oracle()
    monkeypatch.setattr(module, "choose_tier", lambda *names, **options: ORACLE)
    module.test_the_node_has_the_bits_of_the_oracle()


class LastFirst(CpuBackend):
    """Runs what no barrier separates in the opposite order; the barrier before the node `without` is dropped."""

    def __init__(self, ordering: str, without: str = "") -> None:
        super().__init__(ordering, spec=registry.spec("t1"))
        self._without = without

    def build(self, program: Program, buffers: Mapping[str, Buffer]) -> CpuVariant:
        variant = super().build(program, buffers)
        groups: list[list[BoundCall]] = [[]]
        calls = iter(variant.calls)
        for at, step in enumerate(program.steps):
            if isinstance(step, Call):
                groups[-1].append(next(calls))
                continue
            after = next((each for each in program.steps[at:] if isinstance(each, Call)), None)
            if after is None or after.node.label != self._without:
                groups.append([])
        return replace(variant, calls=tuple(call for group in groups for call in reversed(group)))


def test_what_differs_only_where_memory_is_reused_is_found_in_parts(logs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = logs("qwen3-q")
    planted = partial(PlantedBackend, plant=overlapping("act.attn_norm[1]", "act.l_out[0]"))
    found = bisect(log, planted)
    assert found.where is not None and not found.where.tapped, found.lines
    assert (found.where.label, found.where.buffer) == ("attn_norm-1", "act.l_out[0]")
    assert found.replays <= found.allowed
    emitted = emit_repro(log, found, tmp_path, planted)
    assert replay(emitted.log, planted).differences and replay(emitted.log, ORACLE).equal


def test_a_dropped_barrier_is_found_where_work_overlaps(logs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    log = logs("qwen3-q")
    dropping = partial(LastFirst, without="ffn_norm-1")
    assert replay(log, LastFirst).equal, "the barriers there are do order everything"
    found = bisect(log, dropping)
    assert found.where is not None and found.where.label == "ffn_norm-1", found.lines
    assert found.replays <= found.allowed


def test_a_tier_without_a_defect_has_the_oracles_bits(logs) -> None:  # type: ignore[no-untyped-def]
    found = bisect(logs("qwen3-q"), partial(PlantedBackend, plant=Plant()))
    assert found.where is None and found.text == "t1: every step has t_cpu's bits"
