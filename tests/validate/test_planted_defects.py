"""A tier with one thing wrong fails, and the report names that place and no earlier one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from planted import (
    Code,
    PlantedFault,
    change_element,
    change_result,
    drop_store,
    flip_bit,
    has_several_tokens,
    omit_node,
    one_ulp_up,
    overlap_buffer,
    replace_op,
    shift_position,
    shift_table,
    swap_experts,
)
from seen import Judge, Planting, Validate, ValidateOutput, name_of

from zinc_rt.golden.embedded import FOLDER
from zinc_rt.validate.command import main


@dataclass(frozen=True, slots=True)
class Case:
    """A planted defect and the value in which it must be detected first. If the defect has no value of its own (a
    dropped write, a table), `seen` is the first value that shows it.
    """

    name: str
    model: str
    layer: int
    seen: str
    plant: PlantedFault
    sharing: tuple[int, ...] = ()  # later layers that have it too whatever they are fed: a table, keys and values

    def __str__(self) -> str:
        return f"{self.name} in layer {self.layer} of {self.model}"


def return_nan(value: np.float32) -> float:
    return float("nan")


def planted_cases() -> list[Case]:
    result = []
    for model, layers in (("qwen3-q", (0, 1, 2)), ("qwen35moe-q", (0, 2, 3)), ("gemma4-q", (0, 3, 5))):
        for layer in layers:
            norm, out = f"attn_norm-{layer}", f"l_out-{layer}"
            sharing = (5,) if (model, layer) == ("gemma4-q", 3) else ()
            result.append(Case("wrong rms eps", model, layer, norm, replace_op(norm, eps=1e-5), sharing))
            result.append(Case("one ulp", model, layer, out, change_element(out, 2, 17, one_ulp_up)))
            result.append(Case("an output NaN", model, layer, out, change_element(out, 4, 255, return_nan)))
    for index in (0, 1, 2):
        result += [
            Case("dropped KV write", "qwen3-q", index, f"kqv_out-{index}", drop_store(f"kv_write-{index}")),
            Case("one position late", "qwen3-q", index, f"Kcur-{index}", shift_position(f"Kcur-{index}")),
            Case(
                "flipped bit",
                "qwen3-q",
                index,
                f"Vcur-{index}",
                flip_bit(f"model.attn.v_weight[{index}]", 40, 1),
            ),
            Case("stale buffer", "qwen3-q", index, f"ffn_swiglu-{index}", omit_node(f"ffn_swiglu-{index}")),
        ]
    for index in (0, 1, 3):
        moe = [
            Case(
                "swapped experts",
                "qwen35moe-q",
                index,
                f"ffn_moe_topk-{index}",
                swap_experts(f"ffn_moe_logits-{index}"),
            ),
            Case(
                "stale buffer",
                "qwen35moe-q",
                index,
                f"ffn_moe_swiglu-{index}",
                omit_node(f"ffn_moe_swiglu-{index}"),
            ),
        ]
        result += moe
    shifted = shift_table("constant.rope.cos", "constant.rope.sin")
    result.append(Case("rope table off by one", "qwen3-q", 0, "Qcur-0", shifted, sharing=(1, 2)))
    result.append(Case("rope table off by one", "qwen35moe-q", 3, "Qcur-3", shifted))
    flipped = flip_bit("model.ssm.beta_weight[1]", 70, 3)
    result.append(Case("flipped state-space weight", "qwen35moe-q", 1, "beta-1", flipped))
    return result


def assert_located(seen: ValidateOutput, case: Case) -> None:
    assert seen.exit == 1
    layers = [result for result in seen.results if result["kind"] == "layer"]
    assert seen.names_with_status("fail", "layer")[:1] == [f"l_out-{case.layer}"], (
        "the first layer beyond its limit"
    )
    assert [name_of(r) for r in layers[: case.layer]] == seen.names_with_status("pass", "layer")[: case.layer]
    bad = seen.result("first-divergent")["first_bad"]
    assert bad["node"] == case.seen and 0 <= bad["token"] < 5
    apart = [name_of(r) for r in layers if not r["measure"]["resync"]["equal_bits"]]
    assert apart == [f"l_out-{at}" for at in (case.layer, *case.sharing)], (
        "with every layer's input reset, only this one differs"
    )
    assert all(result["repro"] for result in seen.results if result["status"] == "fail")


@pytest.mark.rest(keep=5)
@pytest.mark.parametrize("case", planted_cases(), ids=str)
@pytest.mark.slow(keep=20)
def test_single_defect_is_located(case: Case, judge_plant: Judge) -> None:
    assert_located(judge_plant(str(FOLDER / f"{case.model}.gguf"), case.plant, "--resync"), case)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("model", ["qwen3-q", "qwen35moe-q", "gemma4-q"])
def test_same_tier_without_defect_is_bit_exact(model: str, judge_plant: Judge) -> None:
    seen = judge_plant(str(FOLDER / f"{model}.gguf"), PlantedFault(), "--resync")
    assert seen.exit == 0 and set(seen.report["verdict"]["counts"]) == {"pass"}
    compared = [result for result in seen.results if result["kind"] != "sanitizer"]
    assert compared and all(result["measure"]["equal_bits"] for result in compared)
    assert "first-divergent" not in str(seen.results)


def test_one_ulp_is_reported_with_its_element_and_both_values(qwen3: str, judge_plant: Judge) -> None:
    first = judge_plant(qwen3, change_element("l_out-1", 2, 17, one_ulp_up)).result("l_out-1")
    assert first["measure"]["max_ulp"] == 1
    assert first["first_bad"] == {**first["first_bad"], "token": 2, "dim": 17, "count": 1}
    assert first["first_bad"]["got"] == float(
        np.nextafter(np.float32(first["first_bad"]["want"]), np.float32(np.inf))
    )


def test_nan_is_counted_at_its_first_node(qwen3: str, judge_plant: Judge) -> None:
    seen = judge_plant(qwen3, change_element("l_out-1", 4, 255, return_nan))
    first = seen.result("l_out-1")
    assert first["measure"]["nonfinite"] == 1 and first["measure"]["max_abs"] == "inf"
    assert first["first_bad"] == {
        "token": 4,
        "dim": 255,
        "got": "nan",
        "want": first["first_bad"]["want"],
        "count": 1,
    }
    assert seen.result("l_out-2")["measure"]["nonfinite"] == 256, "the rest of its token, no other"


def test_nan_fails_even_where_distance_would_not(
    qwen3: str, plant_fault: Planting, run_validate: Validate
) -> None:
    plant_fault(change_element("l_out-1", 2, 255, return_nan))
    seen = run_validate("--model", qwen3, "--tiers", "t1:canonical-1-q8,t_cpu", "--tokens", "3,1,4")
    assert seen.exit == 1 and seen.names_with_status("fail") == [
        "l_out-1",
        "l_out-2",
        "logits",
        "first-divergent",
        "finite",
    ]
    assert seen.names_with_status("skip") == ["l_out-0"]
    assert seen.result("first-divergent")["first_bad"]["node"] == "l_out-1"


def test_attention_head_is_named(qwen3: str, judge_plant: Judge) -> None:
    bad = judge_plant(qwen3, change_element("kqv_out-1", 3, 300, lambda value: value + 1)).result(
        "first-divergent"
    )["first_bad"]
    assert (bad["node"], bad["token"], bad["head"], bad["dim"]) == ("kqv_out-1", 3, 2, 44)


@pytest.mark.rest
def test_swapped_experts_fail_the_expert_selection(qwen35moe: str, judge_plant: Judge) -> None:
    seen = judge_plant(qwen35moe, swap_experts("ffn_moe_logits-2"))
    assert seen.names_with_status("fail", "experts")[:1] == ["ffn_moe_topk-2"]
    assert seen.result("ffn_moe_topk-2")["first_bad"]["dim"] == 0


def test_wrong_softcap_passes_every_layer_and_fails_the_logits(gemma4: str, judge_plant: Judge) -> None:
    seen = judge_plant(gemma4, replace_op("result_output", cap=29.0))
    assert seen.exit == 1 and seen.names_with_status("fail") == ["logits", "first-divergent"]
    assert seen.result("first-divergent")["first_bad"]["node"] == "result_output"
    assert seen.result("logits")["measure"]["top1"] == 6, "a softcap moves no maximum"


def test_defect_only_in_later_steps_fails_the_logits_and_is_reported(qwen3: str, judge_plant: Judge) -> None:
    seen = judge_plant(
        qwen3, change_result("l_out-1", lambda x: x + np.float32(1), only=lambda p: not has_several_tokens(p))
    )
    assert seen.exit == 1 and seen.names_with_status("fail") == ["logits", "stepwise"]
    assert seen.result("logits")["first_bad"]["token"] == 5, "the first after the prompt of five"
    assert "only later steps differ" in seen.result("first-divergent")["reason"]


@pytest.mark.rest
def test_repro_command_fails_until_the_defect_is_fixed(
    qwen3: str, judge_plant: Judge, plant_fault: Planting, run_validate: Validate
) -> None:
    first = judge_plant(qwen3, change_element("l_out-2", 1, 3, one_ulp_up), "--resync")
    program, name, *options = shlex.split(first.result("l_out-2")["repro"])
    assert (program, name) == ("zinc-rt", "validate")
    second = run_validate(*options)
    assert second.exit == 1
    assert second.result("l_out-2")["first_bad"] == first.result("l_out-2")["first_bad"]
    plant_fault(PlantedFault())
    assert run_validate(*options).exit == 0


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tiers", ["t1", "t1,t_cpu"])
def test_memory_reused_too_early_fails_only_untapped_runs(
    tiers: str, qwen3: str, plant_fault: Planting, run_validate: Validate
) -> None:
    plant_fault(overlap_buffer("act.attn_norm[1]", target="act.l_out[0]"))
    seen = run_validate("--model", qwen3, "--tiers", tiers, "--tokens", "3,1,4,1,5", "--steps", "0")
    assert seen.exit == 1 and seen.names_with_status("fail") == ["untapped"]
    failed = next(result for result in seen.results if result["status"] == "fail")
    assert "aliasing" in failed["cause"] and failed["first_bad"]["node"] == "logits"


def test_prefill_unlike_token_by_token_fails_only_the_prefill_check(
    qwen3: str, plant_fault: Planting, run_validate: Validate
) -> None:
    plant_fault(change_element("kqv_out-1", 2, 0, one_ulp_up))
    seen = run_validate("--model", qwen3, "--tiers", "t1", "--tokens", "3,1,4,1,5", "--nodes", "kqv_out-*")
    assert seen.exit == 1 and seen.names_with_status("fail") == ["stepwise"]
    bad = seen.result("stepwise")["first_bad"]
    assert (bad["node"], bad["token"], bad["dim"]) == ("kqv_out-1", 2, 0)


def test_ignored_page_table_is_detected(qwen3: str, judge_plant: Judge) -> None:
    """It is right wherever pages lie in order, as they do in a fresh engine that gives the lowest first."""

    def address_by_position(code: Code) -> Code:
        def run_by_position(
            math: Any, q: Any, k: Any, v: Any, position: Any, slot: Any, table: np.ndarray, *gate: Any, **own: Any
        ) -> Any:
            by_position = np.arange(table.size, dtype=np.int32).reshape(table.shape)
            return code(math, q, k, v, position, slot, by_position, *gate, **own)

        return run_by_position

    seen = judge_plant(qwen3, PlantedFault("kqv_out-0", code=address_by_position))
    assert seen.exit == 1 and seen.result("first-divergent")["first_bad"]["node"] == "kqv_out-0"


@pytest.mark.rest
def test_golden_detects_the_defect_too(qwen3: str, plant_fault: Planting, run_validate: Validate) -> None:
    plant_fault(replace_op("attn_norm-1", eps=1e-2))
    seen = run_validate("--model", qwen3, "--tiers", "t1", "--golden", str(FOLDER / "qwen3-q.npz"), "--resync")
    assert seen.exit == 1 and seen.names_with_status("fail", "layer")[:1] == ["l_out-1"]
    alone = {name_of(r): r["measure"]["resync"]["max_abs"] for r in seen.results if r["kind"] == "layer"}
    assert alone["l_out-1"] > 3e-4 > max(alone["l_out-0"], alone["l_out-2"])


def test_terminal_output_shows_the_location_and_the_command(
    qwen3: str, plant_fault: Planting, capsys: pytest.CaptureFixture[str]
) -> None:
    plant_fault(change_element("l_out-1", 2, 17, one_ulp_up))
    assert main(["--model", qwen3, "--tiers", "t1,t_cpu", "--tokens", "3,1,4"]) == 1
    *_, repro, last = capsys.readouterr().out.splitlines()
    assert repro == f"repro      zinc-rt validate --model {qwen3} --tiers t1,t_cpu --tokens 3,1,4"
    assert last.startswith("FAIL  1 model: ")
