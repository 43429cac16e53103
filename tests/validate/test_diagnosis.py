"""The last lines of a failure: where it is, who agrees with whom, what to suspect and what to run next."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import (
    PlantedBackend,
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
)
from seen import Capture, golden_of

from zinc_rt.backends.base import Backend, Finding
from zinc_rt.engine import devices
from zinc_rt.engine.devices import Choice
from zinc_rt.exec import Buffer
from zinc_rt.golden.format import read_arrays
from zinc_rt.ir.dtypes import find_block
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.scales import SCALES
from zinc_rt.validate import runner
from zinc_rt.validate.command import main

FEW = ("--tokens", "3,1,4,1,5", "--steps", "1")
POINTS = {point.name: point for point in entry_points(group="zinc_rt.commands")}
Digest = dict[str, str]  # what follows each of the last lines' first word
Told = Callable[..., Digest]
FINDING = Finding(
    "out-of-bounds",
    "kernel swiglu pc 0x40 (swiglu.s:21) `global_load_b32 v1, v0, s[2:3]`: 4 bytes beyond act.ffn_up[0]",
    kernel="swiglu",
    pc=0x40,
    instruction="global_load_b32 v1, v0, s[2:3]",
    source="swiglu.s:21",
)


EARLY = replace(FINDING, rule="uninitialised-lds", sentence="kernel swiglu pc 0x40: in the LDS")


class FindingBackend(PlantedBackend):
    """A run with every bit right, on a device with findings."""

    def __init__(self, ordering: str, plant: PlantedFault, found: list[Finding]) -> None:
        super().__init__(ordering, plant)
        self.found = found

    @property
    def instrument(self) -> FindingBackend:  # type: ignore[override]
        return self

    def findings(self) -> list[Finding]:
        return self.found

    def consulted(self) -> tuple[str, ...]:
        return ("ioctl DRM_IOCTL_AMDGPU_USERQ", "kernel 7.0", "op v_exp_f32")


@pytest.fixture
def run_diagnosis(monkeypatch: pytest.MonkeyPatch, capsys: Capture, qwen3: str) -> Told:
    """told({tier: plant}, option, ...): what is said of a failure in which these tiers are T-CPU with a plant."""

    def run_validate(
        plants: Mapping[str, PlantedFault], *given: str, findings: list[Finding] | None = None
    ) -> Digest:
        def open_changed(choice: Choice, ordering: str, **options: int) -> Backend:
            if choice.tier not in plants:
                return devices.open_backend(choice, ordering, **options)
            if findings is not None:
                return FindingBackend(ordering, plants[choice.tier], findings)
            return PlantedBackend(ordering, plants[choice.tier])

        monkeypatch.setattr(runner, "open_backend", open_changed)
        own = () if "--model" in given else ("--model", qwen3)
        tokens = () if "--golden" in given else FEW
        patient = ("--timeout", "60")  # a card's two seconds are short on a machine that tests keep busy
        assert main([*own, *tokens, *given, *patient, "--no-cache"]) == 1
        lines = capsys.readouterr().out.splitlines()
        begin = next(index for index, line in enumerate(lines) if line.startswith("first bad  "))
        assert lines[-1].startswith("FAIL  ") and lines[-2].startswith("repro      zinc-rt validate ")
        digest: Digest = {"all": "\n".join(lines)}
        for line in lines[begin:-1]:
            digest.setdefault(line[:10].strip(), line[11:])
        assert_command_parses(digest["next"], monkeypatch)
        return digest

    return run_validate


class ParseFinished(Exception):
    """Raised after a command line was accepted, before anything runs."""


def assert_command_parses(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that every part was written, including the record."""

    parse = argparse.ArgumentParser.parse_args

    def stop_after_parse(self: argparse.ArgumentParser, *given: object, **named: object) -> None:
        parse(self, *given, **named)
        raise ParseFinished

    for part in command.split(" ; "):
        program, name, *options = shlex.split(part)
        assert program == "zinc-rt"
        if name == "trace":
            assert options[:3] == ["-o", "run.zlog", "--"]
            name, *options = options[3:]
        with monkeypatch.context() as patch, pytest.raises(ParseFinished):
            patch.setattr(argparse.ArgumentParser, "parse_args", stop_after_parse)
            POINTS[name].load()(options)


SOUND = PlantedFault()
THREE = ("--tiers", "t1,t2,t_cpu")
SCALED = replace_op("attn_norm-1", eps=1e-2)


def plant_error_at(label: str) -> PlantedFault:
    return change_element(label, 2, 17, lambda value: value + 1)


# --- one tier of three --------------------------------------------------------------------------------------


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("plant", "place"),
    [
        (SCALED, "layer 1, node attn_norm-1, token 0, element 0"),
        (shift_position("Kcur-1"), "layer 1, node Kcur-1, token "),
        (drop_store("kv_write-1"), "layer 1, node kqv_out-1, token 0, head 0, element 0"),
        (flip_bit("model.attn.v_weight[1]", 40, 1), "layer 1, node Vcur-1, token 0"),
        (omit_node("ffn_swiglu-2"), "layer 2, node ffn_swiglu-2, token 0"),
        (change_element("l_out-2", 2, 17, one_ulp_up), "layer 2, node l_out-2, token 2, element 17"),
    ],
    ids=["scale", "rope", "kv write", "weight", "stale", "ulp"],
)
def test_single_deviating_tier_is_the_suspect(
    plant: PlantedFault, place: str, run_diagnosis: Told, qwen3: str
) -> None:
    output = run_diagnosis({"t1": plant, "t2": SOUND}, *THREE)
    assert output["first bad"].startswith(f"qwen3-q, t1 against t_cpu: {place}")
    assert output["agree"] in (
        "t2 and t_cpu to the bit; t1 with no other",
        "t_cpu and t2 to the bit; t1 with no other",
    )
    assert output["suspect"] == "t1 differs from t_cpu, t2 does not: suspect t1"
    assert output["next"] == (
        f"zinc-rt trace -o run.zlog -- run --model {qwen3} --tokens 3,1,4,1,5 --ctx 256 --max-tokens 2 "
        "--ignore-eos --tier t1 --device sim ; zinc-rt replay run.zlog --tiers t1 --bisect"
    )


@pytest.mark.rest
def test_suspect_tier_need_not_be_the_first(run_diagnosis: Told) -> None:
    output = run_diagnosis({"t1": SOUND, "t2": SCALED}, *THREE)
    assert output["suspect"] == "t2 differs from t_cpu, t1 does not: suspect t2"
    assert "--tier t2 --device sim ; " in output["next"] and "--tiers t2 --bisect" in output["next"]


def test_two_tiers_are_not_enough_to_decide(run_diagnosis: Told) -> None:
    output = run_diagnosis({"t1": SCALED}, "--tiers", "t1,t_cpu")
    assert output["agree"] == "none of t_cpu and t1 to the bit"
    assert output["suspect"] == "t1 differs from t_cpu, and there is no third tier to decide: suspect t1"


def test_partial_model_is_recorded_with_same_layers(run_diagnosis: Told, qwen3: str) -> None:
    output = run_diagnosis(
        {"t1": SCALED}, "--tiers", "t1,t_cpu", "--layers", "1:", "--input", "random:3", "--steps", "0"
    )
    traced = shlex.split(output["next"].partition(" ; ")[0])
    assert traced[5] == "validate" and traced[traced.index("--layers") + 1] == "1:3"
    assert traced[traced.index("--input") + 1] == "random:3"


# --- the oracle, the model, the golden ----------------------------------------------------------------------


@pytest.mark.rest
def test_two_tiers_against_oracle_suspect_the_oracle(run_diagnosis: Told) -> None:
    output = run_diagnosis({"t1": SOUND, "t2": SOUND, "t_cpu": SCALED}, *THREE)
    assert output["agree"] == "t1 and t2 to the bit; t_cpu with no other"
    assert "t1 and t2 agree to the bit and t_cpu differs from them: suspect the oracle" in output["suspect"]
    assert "--tiers t_cpu,t_cpu:float32-dequant" in output["next"]


@pytest.mark.rest
def test_oracle_alone_off_the_golden_is_the_suspect(run_diagnosis: Told, qwen3: str) -> None:
    output = run_diagnosis(
        {"t1": SOUND, "t_cpu": SCALED}, "--tiers", "t1,t_cpu", "--golden", golden_of(qwen3), "--steps", "0"
    )
    assert output["suspect"] == "only t_cpu differs from the golden, t1 does not: suspect the oracle"


@pytest.mark.rest
def test_golden_agreeing_with_oracle_clears_it(run_diagnosis: Told, qwen3: str) -> None:
    golden = ("--golden", golden_of(qwen3), "--steps", "0")
    output = run_diagnosis({"t1": SCALED, "t2": SCALED}, *THREE, *golden)
    assert output["suspect"] == (
        "t1 and t2 differ from t_cpu and from the golden, which t_cpu agrees with: suspect t1 and t2"
    )
    assert "--tier t1 " in output["next"]


@pytest.mark.rest
def test_one_tier_off_the_golden_is_rerun_with_the_oracle(run_diagnosis: Told, qwen3: str) -> None:
    output = run_diagnosis({"t1": SCALED}, "--tiers", "t1", "--golden", golden_of(qwen3), "--steps", "0")
    assert output["suspect"].startswith("t1 differs from the golden, and no other tier ran")
    assert "--tiers t1,t_cpu --golden" in output["next"]


@pytest.mark.rest
def test_all_tiers_off_golden_equally_suspect_model_or_golden(run_diagnosis: Told, qwen3: str) -> None:
    both = {"t1": SCALED, "t_cpu": SCALED}
    output = run_diagnosis(both, "--tiers", "t1,t_cpu", "--golden", golden_of(qwen3), "--steps", "0")
    assert output["agree"] == "t1 and t_cpu to the bit, in the prompt's tapped pass"
    assert output["suspect"] == (
        "t1 and t_cpu agree to the bit and differ from the golden: suspect the model code at attn_norm-1, "
        "or the golden"
    )
    assert output["next"].startswith(f"zinc-rt validate --model {qwen3} --tiers t1,t_cpu --golden ")
    assert output["next"].endswith(" --resync")


def edit_golden(tmp_path: Path, qwen3: str, **change: Callable[[np.ndarray], None]) -> str:
    arrays = read_arrays(Path(golden_of(qwen3)))
    for name, edit in change.items():
        edit(arrays[name])
    path = tmp_path / "edited.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


@pytest.mark.rest
def test_golden_with_one_edited_layer_is_distinguished_from_wrong_model(
    run_diagnosis: Told, qwen3: str, tmp_path: Path
) -> None:
    def change_value(l_out: np.ndarray) -> None:
        l_out[1, 3, 5] += 1

    path = edit_golden(tmp_path, qwen3, l_out_deq=change_value)
    output = run_diagnosis({"t1": SOUND}, "--tiers", "t1,t_cpu", "--golden", path)
    assert "layer 1, node l_out-1, token 3, element 5" in output["first bad"]
    assert output["suspect"].startswith(
        "the golden's layer 1 is off, but later values are not: suspect the golden"
    )
    assert output["next"] == f"zinc-rt golden check {path} --model {qwen3}"


@pytest.mark.rest
def test_golden_with_edited_greedy_tokens_is_detected(run_diagnosis: Told, qwen3: str, tmp_path: Path) -> None:
    def change_value(tokens: np.ndarray) -> None:
        tokens[3] += 1

    path = edit_golden(tmp_path, qwen3, greedy_tokens_deq=change_value)
    output = run_diagnosis({}, "--golden", path)
    assert output["agree"] == "only t_cpu ran" and "greedy, token 3" in output["first bad"]
    assert output["suspect"].startswith("every logit agrees with the golden, but a greedy token does not")
    assert output["next"] == f"zinc-rt golden check {path} --model {qwen3}"


@pytest.mark.rest
def test_later_steps_off_golden_in_every_tier_suspect_model_code_state(run_diagnosis: Told, qwen3: str) -> None:
    later = change_result(
        "l_out-1", lambda x: x + np.float32(1), only=lambda program: not has_several_tokens(program)
    )
    output = run_diagnosis({"t1": later, "t_cpu": later}, "--tiers", "t1,t_cpu", "--golden", golden_of(qwen3))
    assert output["suspect"].endswith("on t1 and t_cpu: suspect the model code's decode, or its state")
    words = shlex.split(output["next"])
    assert words[:2] == ["zinc-rt", "validate"] and len(words[-1].split(",")) == 24 + 8


@pytest.mark.rest
@pytest.mark.parametrize("array", ["l_out_deq", "logits_deq"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_golden_never_passes(
    array: str, value: float, run_diagnosis: Told, qwen3: str, tmp_path: Path
) -> None:
    def change_value(values: np.ndarray) -> None:
        values[1, 3] = value

    output = run_diagnosis({}, "--golden", edit_golden(tmp_path, qwen3, **{array: change_value}), "--steps", "0")
    assert output["not finite"].startswith(f"the golden itself contains {value}: ")
    assert output["suspect"].startswith("suspect the golden")


@pytest.mark.rest
def test_rule_violation_of_a_kernel_is_suspected_before_differences(run_diagnosis: Told) -> None:
    later = change_result(
        "l_out-1", lambda x: x + np.float32(1), only=lambda program: not has_several_tokens(program)
    )
    output = run_diagnosis({"t1": later}, "--tiers", "t1,t_cpu", findings=[FINDING])
    assert output["suspect"].endswith("suspect kernel swiglu, swiglu.s:21") and "means" not in output
    output = run_diagnosis({"t1": SOUND}, "--tiers", "t1,t_cpu", findings=[EARLY])
    assert "a barrier is missing before the load" in output["means"]


# --- ways to run --------------------------------------------------------------------------------------------


def test_difference_only_in_untapped_run_is_aliasing(run_diagnosis: Told) -> None:
    output = run_diagnosis(
        {"t1": overlap_buffer("act.attn_norm[1]", target="act.l_out[0]")}, "--tiers", "t1,t_cpu"
    )
    assert (
        "only the untapped run differs" in output["suspect"]
        and "aliasing, or a missing barrier" in output["suspect"]
    )
    assert "trace -o run.zlog -- run " in output["next"] and "--tier t1 " in output["next"]


def test_difference_only_in_later_steps_is_state(run_diagnosis: Told) -> None:
    later = change_result(
        "l_out-1", lambda x: x + np.float32(1), only=lambda program: not has_several_tokens(program)
    )
    output = run_diagnosis({"t1": later}, "--tiers", "t1,t_cpu")
    assert output["first bad"].startswith("qwen3-q, t1 against t_cpu: logits, token 5, element 0")
    assert output["suspect"].endswith("only later steps differ: suspect state or the KV cache of t1")


@pytest.mark.rest
@pytest.mark.parametrize("node", ["l_out-1", "ffn_out-1"])  # with all its inputs, without an optional one
def test_tier_matching_golden_is_not_blamed_for_later_steps_of_another(
    node: str, run_diagnosis: Told, qwen3: str
) -> None:
    later = change_result(node, lambda x: -x, only=lambda program: not has_several_tokens(program))
    output = run_diagnosis({"t1": later}, "--tiers", "t1,t_cpu", "--golden", golden_of(qwen3))
    assert output["suspect"].endswith("only later steps differ: suspect state or the KV cache of t1")
    assert "--bisect" in output["next"]


def test_prompt_in_one_pass_is_compared_with_token_by_token(run_diagnosis: Told) -> None:
    output = run_diagnosis(
        {"t1": change_element("kqv_out-1", 2, 0, one_ulp_up)}, "--tiers", "t1", "--nodes", "kqv_out-*"
    )
    assert output["suspect"].startswith("one pass over the prompt and token by token differ: suspect positions")


# --- what is no number --------------------------------------------------------------------------------------


def test_nan_is_traced_to_its_first_node(run_diagnosis: Told) -> None:
    output = run_diagnosis(
        {"t1": change_element("ffn_out-1", 4, 255, lambda value: float("nan")), "t2": SOUND}, *THREE
    )
    assert output["not finite"] == (
        "first non-finite value: node ffn_out-1, token 4, element 255: nan; its inputs were finite"
    )
    assert output["suspect"] == "t1 differs from t_cpu, t2 does not: suspect t1"


def test_infinity_in_later_step_of_one_tier_is_blamed_on_that_tier(run_diagnosis: Told) -> None:
    later = change_result(
        "l_out-1", lambda x: x * np.float32(np.inf), only=lambda program: not has_several_tokens(program)
    )
    output = run_diagnosis({"t1": later}, "--tiers", "t1,t_cpu")
    assert output["not finite"].startswith("first non-finite value: node l_out-1, token 5, element 0")
    assert output["suspect"].endswith("suspect state or the KV cache of t1")


def test_nan_weight_in_both_tiers_is_not_agreement(run_diagnosis: Told) -> None:
    def put_nan_in_weight(resident: dict[str, Weight]) -> dict[str, Weight]:
        name = "model.attn.norm_weight[1]"
        raw = np.array(resident[name].raw)
        raw[3] = np.nan
        return {**resident, name: Weight("f32", raw.shape, raw)}

    both = PlantedFault(resident=put_nan_in_weight)
    output = run_diagnosis({"t1": both, "t_cpu": both}, "--tiers", "t1,t_cpu")
    assert "node attn_norm-1, token 0, element 3: nan; its inputs were finite" in output["not finite"]
    assert output["suspect"].startswith("t1 and t_cpu: not finite, and the file is")


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("pattern", "value"), [(0x7C00, "inf"), (0x7E00, "nan")])
def test_bad_scale_in_the_file_is_reported_with_its_block(
    pattern: int, value: str, run_diagnosis: Told, qwen3: str, tmp_path: Path
) -> None:
    name, whole = "blk.1.attn_v.weight", read_gguf(qwen3)
    tensor = whole.tensors[name]
    raw = bytearray(Path(qwen3).read_bytes())
    offset = raw.find(tensor.data.tobytes()) + 5 * find_block(tensor.dtype)[1] + SCALES[tensor.dtype][0]
    raw[offset : offset + 2] = pattern.to_bytes(2, "little")
    path = tmp_path / "spoilt.gguf"
    path.write_bytes(raw)
    output = run_diagnosis({"t1": SOUND}, "--model", str(path), "--tiers", "t1,t_cpu")
    assert f"{name} ({tensor.dtype}): the scale of block 5 is {value}" in output["suspect"]
    assert "its weight is not: " in output["not finite"]
    assert output["next"] == f"zinc-rt inspect --model {path} --check"


# --- the simulated device -----------------------------------------------------------------------------------


def test_sanitizer_finding_is_printed_with_kernel_and_line(run_diagnosis: Told) -> None:
    output = run_diagnosis({"t1": SOUND}, "--tiers", "t1,t_cpu", findings=[FINDING])
    assert output["suspect"].endswith("suspect kernel swiglu, swiglu.s:21")
    assert output["next"].startswith("zinc-rt isa lint ") and output["next"].endswith("gfx1201/built/swiglu.zrt")
    assert Path(shlex.split(output["next"])[-1]).is_file()
    assert f"fail  sanitizer: {FINDING.text}" in output["all"]


@pytest.mark.rest
@pytest.mark.skipif(find_kernel_set("gfx1201") is None, reason="no gfx1201 kernels in this build")
def test_simulated_device_finding_is_reported_with_location(
    qwen3: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Weights that count as never written: right in every bit, and read before they were initialised."""

    def open_changed(choice: Choice, ordering: str, **options: int) -> Backend:
        backend = devices.open_backend(choice, ordering, **options)
        upload = backend.upload

        def forget_upload(*given: Any) -> dict[str, Buffer]:
            buffers = upload(*given)
            buffer = buffers["model.attn.norm_weight[1]"]
            assert backend.instrument is not None
            backend.instrument.discard(buffer, 0, buffer.size_bytes)
            return buffers

        if choice.tier == "t1":
            monkeypatch.setattr(backend, "upload", forget_upload)
        return backend

    monkeypatch.setattr(runner, "open_backend", open_changed)
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)
    assert main(["--model", qwen3, "--tiers", "t1,t_cpu", "--tokens", "3,1,4", "--steps", "0"]) == 1
    output = capsys.readouterr().out
    assert (
        "node attn_norm-1" in output
        and "suspect    every value is right, but the simulated device reports findings" in output
    )
    assert re.search(r"next       zinc-rt isa lint \S+/rms_norm\w*\.zrt\n", output)


def test_many_findings_are_summarised_with_a_count(run_diagnosis: Told) -> None:
    many = [Finding("race", f"the packet at {index} reads what is being written") for index in range(9)]
    output = run_diagnosis({"t1": SOUND}, "--tiers", "t1,t_cpu", findings=many)
    assert output["all"].count("fail  sanitizer: race") == 5 and "and 4 more findings" in output["all"]
    assert output["sanitizer"].startswith("9 findings, first race: the packet at 0")
    assert output["next"] == "zinc-rt pm4-test --device sim"


@pytest.mark.rest
def test_verdict_names_its_dependencies_on_assumptions(run_diagnosis: Told) -> None:
    output = run_diagnosis({"t1": SOUND}, "--tiers", "t1,t_cpu", findings=[FINDING])
    names = "function_bits, chip/*/firmware, kernel/7.0/userq_hardened"
    assert output["all"].endswith(f", depends on 3 unverified assumptions: {names}")
