"""Structural criteria on what runs here: what there is passes, a runtime that broke its word fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends.cpu import self_test
from zinc_rt.cli.report import Result
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.resident import Variant
from zinc_rt.engine.runner import Runner, StepBlock, StepHandle
from zinc_rt.host.settings import Settings
from zinc_rt.ir.op import Op
from zinc_rt.perf.gate.milestones import find_milestone, load_milestones
from zinc_rt.perf.gate.offered import GateInput
from zinc_rt.perf.gate.verdict import evaluate
from zinc_rt.perf.structure import executed, measures
from zinc_rt.perf.structure.lab import CannotMeasure, Lab
from zinc_rt.perf.structure.measures import MEASURES


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(device="sim") as opened:
        yield opened


def decide_criterion(lab: Lab, name: str) -> Result:
    milestone, _, only = name.partition("/")
    (result,) = evaluate(find_milestone(milestone), lab, GateInput(), only=only)
    return result


def test_every_structural_measure_exists_and_is_used() -> None:
    named = {
        criterion.measure for m in load_milestones() for criterion in m.criteria if criterion.type == "structural"
    }
    assert named == set(MEASURES)


@pytest.mark.rest
@pytest.mark.parametrize("name", ["opcodes", "verifier", "every-op", "token-for-token"])
def test_m0_passes(lab: Lab, name: str) -> None:
    assert decide_criterion(lab, f"M0/{name}").status == "pass"


@pytest.mark.rest
@pytest.mark.parametrize("tier", ["t1", "t2"])
def test_token_costs_one_submission_on_simulated_device(lab: Lab, tier: str) -> None:
    result = decide_criterion(lab, "M1/one-submit" if tier == "t2" else "M2/one-submit")
    assert result.status == "pass" and result.measure["value"] == 1
    assert result.measure["simulated"] and "simulated device" in result.reason
    assert result.measure["detail"]["submissions"] == [1] * 8
    assert min(result.measure["detail"]["dwords"]) > 0, "counted from the queues' write pointers"


@pytest.mark.rest
def test_second_submission_per_token_fails(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Runner.submit

    def collect_twice(self: Runner, block: StepBlock) -> StepHandle:
        self.collect(real(self, block))
        return real(self, block)

    monkeypatch.setattr(Runner, "submit", collect_twice)
    result = decide_criterion(lab, "M1/one-submit")
    assert (result.status, result.measure["value"]) == ("fail", 2)


@pytest.mark.rest
def test_prompt_processed_in_two_passes_fails(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zinc_rt.engine.engine.STEP_TOKENS", 16)
    result = decide_criterion(lab, "M2/one-pass")
    assert (result.status, result.measure["value"]) == ("fail", 2)


@pytest.mark.rest
def test_tiers_differing_in_one_bit_fail(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Engine.forward

    def increment_tokens(self: Engine, tokens: Any, **options: Any) -> np.ndarray:
        logits = real(self, tokens, **options)
        if self.backend.spec.tier == "t2":
            logits.view(np.uint32)[0, 0] ^= 1
        return logits

    monkeypatch.setattr(Engine, "forward", increment_tokens)
    assert (
        decide_criterion(lab, "M2/tiers-agree").status,
        decide_criterion(lab, "M2/tiers-agree").measure["value"],
    ) == ("fail", 1)


@pytest.mark.rest
def test_constant_logits_are_not_agreement(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "forward", lambda self, tokens, **options: np.zeros((1, 8), np.float32))
    result = decide_criterion(lab, "M2/tiers-agree")
    assert result.status == "blocked" and "constant" in result.reason


def test_clamp_blocks_structural_criteria() -> None:
    with Lab(device="sim", settings=Settings(lm_head_rows=16)) as lab:
        results = [decide_criterion(lab, f"M0/{criterion.id}") for criterion in find_milestone("M0").criteria[:5]]
    assert {result.status for result in results} == {"blocked"}
    assert all("LM head capped" in result.reason for result in results)


NOT_BUILT = [
    "M2/metal", "M5/zero-submit", "M6/draft-model",
    "M6/prefix-tree", "M6/quantised-kv", "M7/tier", "M8/tier",
]  # fmt: skip


@pytest.mark.rest
def test_unbuilt_parts_are_blocked_by_name(lab: Lab) -> None:
    for name in NOT_BUILT:
        result = decide_criterion(lab, name)
        assert result.status == "blocked" and "not built in this version" in result.reason, name


def test_all_original_criteria_exist() -> None:
    """Those that were once left out."""
    names = {criterion.name for m in load_milestones() for criterion in m.criteria}
    assert names >= {"M3/slots", "M3/paged-kv", "M3/isolation", "M3/tenants", "M4/top-10", "M6/prefix-tree"}
    slots = next(criterion for criterion in find_milestone("M3").criteria if criterion.id == "slots")
    assert slots.arguments["slots"] == 16


def test_structural_measures_do_not_read_static_tables() -> None:
    """A folder or a row in a table is there before anything runs."""
    tables = {"room_built", "tier_built", "op_kernels", "ops_without_kernel", "nodes_off_tier", "matrix_kernels"}
    assert not tables & set(MEASURES)


# --- measures that run something, each with what it is there to find ---


@pytest.mark.rest
def test_every_opcode_runs(lab: Lab) -> None:
    result = MEASURES["ops_not_run"](lab, "t_cpu_native")
    count = len(set(Op) - {Op.BARRIER})
    assert result.value == 0 and f"{count} of {count}" in result.how


@pytest.mark.rest
def test_opcode_with_wrong_bits_counts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = self_test.describe_difference

    def return_wrong_result(backend: Any, case: Any) -> str:
        return "1 of 4 differ" if case.op.name == "SOFTCAP" else real(backend, case)

    monkeypatch.setattr(self_test, "describe_difference", return_wrong_result)
    result = MEASURES["ops_not_run"](lab, "t_cpu")
    assert result.value == 1 and "SOFTCAP" in result.detail["wrong"]


@pytest.mark.rest
def test_every_node_is_dispatched_and_matches_the_oracle(lab: Lab) -> None:
    assert MEASURES["nodes_not_run"](lab, "t_cpu_native").value == 0


@pytest.mark.rest
def test_undispatched_node_counts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = executed.list_dispatched_nodes
    monkeypatch.setattr(executed, "list_dispatched_nodes", lambda variant: real(variant)[:-1])
    result = MEASURES["nodes_not_run"](lab, "t_cpu_native")
    assert result.value == 2 and set(result.detail["missing"].values()) == {"not dispatched"}


@pytest.mark.rest
def test_fused_node_covers_nodes_between_its_inputs_and_outputs(lab: Lab) -> None:
    """As the tier runs them; of a node that runs as it is that is the node itself."""
    engine = lab.open_engine("t1").engine
    plain = engine.graph("decode")
    run = engine.variants.fuse_graph(plain).nodes
    ids = {
        id(node)
        for item in run
        if item.op.name != "BARRIER"
        for node in executed.find_represented_nodes(plain, item)
    }
    assert ids == {id(node) for node in plain.nodes if node.op.name != "BARRIER"}
    (write, *_) = [node for node in run if node.op.name == "QKV_FUSED_ROPE_KV_WRITE"]
    assert {node.op.name for node in executed.find_represented_nodes(plain, write)} == {
        "RMS_NORM",
        "MATMUL",
        "ROPE",
        "KV_WRITE_BATCHED",
    }
    assert all(
        executed.find_represented_nodes(plain, node) == [node] for node in plain.nodes if node.op.name != "BARRIER"
    )


@pytest.mark.rest
def test_fused_graph_missing_a_node_counts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = executed.list_dispatched_nodes

    def without_fused(variant: Variant) -> list[Any]:
        return [node for node in real(variant) if node.op.name != "QKV_FUSED_ROPE_KV_WRITE"]

    assert MEASURES["nodes_not_run"](lab, "t1").value == 0
    monkeypatch.setattr(executed, "list_dispatched_nodes", without_fused)
    result = MEASURES["nodes_not_run"](lab, "t1")
    assert result.value > 0 and set(result.detail["missing"].values()) == {"not dispatched"}


@pytest.mark.rest
def test_layers_sharing_a_dispatch_match_oracle_logits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert decide_criterion(lab, "M4/fused-prefill").status == "pass"
    assert MEASURES["layers_joined"](lab, "t_cpu").value == 0, "the oracle runs the plain graph"
    leak_neighbours(monkeypatch, lambda engine, batch: engine.backend.spec.tier == "t1")
    assert MEASURES["layers_joined"](lab, "t1").value == 0


@pytest.mark.rest
def test_node_with_one_wrong_bit_counts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real = executed._tap_stage

    def return_wrong_result(bench: Any, stage: Any) -> Any:
        for location, (name, data) in enumerate(real(bench, stage)):
            wrong = location == 3 and bench.engine.backend.spec.tier != "t_cpu"
            yield name, bytes([data[0] ^ 1]) + data[1:] if wrong else data

    monkeypatch.setattr(executed, "_tap_stage", return_wrong_result)
    result = MEASURES["nodes_not_run"](lab, "t_cpu_native")
    assert result.value == 2 and all("than the oracle" in reason for reason in result.detail["missing"].values())


@pytest.mark.rest
def test_drafts_are_judged_on_the_tier(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MEASURES["drafts_misjudged"](lab, "t_cpu_native", 40, 4).value == 0
    real = Variant.read
    monkeypatch.setattr(Variant, "read", lambda self, name, counts: real(self, name, counts) + 1)
    assert MEASURES["drafts_misjudged"](lab, "t_cpu_native", 40, 4).value == 40


@pytest.mark.rest
def test_existing_tier_must_generate_oracle_tokens(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MEASURES["tokens_as_the_oracle"](lab, "t_cpu_native", 8).value == 8
    real = measures._generate_greedily

    def return_wrong_result(engine: Engine, count: int) -> list[int]:
        tokens = real(engine, count)
        return tokens if engine.backend.spec.tier == "t_cpu" else [*tokens[:5], tokens[5] + 1, *tokens[6:]]

    monkeypatch.setattr(measures, "_generate_greedily", return_wrong_result)
    assert MEASURES["tokens_as_the_oracle"](lab, "t_cpu_native", 8).value == 5


def leak_neighbours(monkeypatch: pytest.MonkeyPatch, condition: Any) -> None:
    """An engine that changes one bit of its logits if `when(engine, batch)` is true."""
    real = Engine.step

    def step(self: Engine, batch: Any, rows: Any, **options: Any) -> np.ndarray:
        batch = list(batch)
        logits = real(self, batch, rows, **options)
        if condition(self, batch):
            logits.view(np.uint32)[0, 0] ^= 1
        return logits

    monkeypatch.setattr(Engine, "step", step)


@pytest.mark.rest
def test_sequence_is_independent_of_its_neighbours(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MEASURES["values_moved_by_neighbours"](lab, "t_cpu_native", 6).value == 0
    leak_neighbours(monkeypatch, lambda engine, batch: len(batch) == 3)
    assert MEASURES["values_moved_by_neighbours"](lab, "t_cpu_native", 6).value > 0


@pytest.mark.rest
def test_sequence_is_independent_of_its_page_placement(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    result = MEASURES["values_moved_by_paging"](lab, "t_cpu_native", 80)
    assert result.value == 0 and "pages 1, 3, 5, 7, 9" in result.how
    leak_neighbours(monkeypatch, lambda engine, batch: len(engine.sequences) == 2)
    assert MEASURES["values_moved_by_paging"](lab, "t_cpu_native", 80).value == 1


@pytest.mark.rest
def test_single_page_cannot_measure_paging(lab: Lab) -> None:
    with pytest.raises(CannotMeasure, match="one page"):
        MEASURES["values_moved_by_paging"](lab, "t_cpu_native", 8)


@pytest.mark.rest
def test_matrix_instructions_are_searched_in_executed_code(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7], as GFX12 encodes it."""
    matrix, plain = bytes.fromhex("004040cc0819021c"), bytes.fromhex("0000bfbf")
    assert executed._has_matrix_instruction(plain + matrix, "gfx1201") and not executed._has_matrix_instruction(
        plain, "gfx1201"
    )
    line: dict[str, Any] = {"tier": "t_cpu_native", "tokens": 2, "quants": ["f32"], "ordering": "wmma-f16"}
    with pytest.raises(CannotMeasure, match="not implemented in this version"):
        MEASURES["matrix_kernels_run"](lab, **line)
    monkeypatch.setattr(executed, "_has_matrix_instruction", lambda image, arch: True)
    monkeypatch.setattr(executed, "find_code", lambda variant: {"prefill_tile": matrix})
    result = MEASURES["matrix_kernels_run"](lab, **line)
    assert result.value == 1 and "prefill_tile ran on t_cpu_native" in result.how
    real = Engine.forward

    def increment_tokens(self: Engine, tokens: Any, **options: Any) -> np.ndarray:
        logits = real(self, tokens, **options)
        logits.view(np.uint32)[0, 0] ^= self.backend.spec.tier == "t_cpu_native"
        return logits

    monkeypatch.setattr(Engine, "forward", increment_tokens)
    assert MEASURES["matrix_kernels_run"](lab, **line).value == 0, "other logits than the oracle's"


@pytest.mark.slow
def test_prompt_runs_on_matrix_units(lab: Lab) -> None:
    result = decide_criterion(lab, "M4/wmma")
    assert result.status == "pass", result.reason
    assert "matmul_q8_32_q4_0, matmul_q8_32_q8_0 ran on t1" in result.reason


@pytest.mark.rest
def test_crash_fails_only_its_criterion(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_crash(*_: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(Engine, "graph", raise_crash)
    assert decide_criterion(lab, "M0/verifier").status == "fail"
    assert decide_criterion(lab, "M0/opcodes").status == "pass"


@pytest.mark.parametrize(("name", "most"), [("flood", 4), ("interactive-first", 2)])
@pytest.mark.rest
def test_scheduler_guarantees_are_measured_in_virtual_time(lab: Lab, name: str, most: int) -> None:
    result = decide_criterion(lab, f"M3/{name}")
    assert result.status == "pass" and 1 <= result.measure["value"] <= most
    assert "sched-test --workload" in result.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tenants", "scheduler", "prefix-hits", "even-gaps", "price-of-fairness"])
def test_m3_passes_on_simulated_device(lab: Lab, name: str) -> None:
    result = decide_criterion(lab, f"M3/{name}")
    assert result.status == "pass", result.reason
