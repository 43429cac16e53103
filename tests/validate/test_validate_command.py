"""zinc-rt validate: what it compares with what, what it refuses, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from seen import FEW, Q8, TWO, Capture, Validate, golden_of, name_of, read_rejection

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.capture import Selection, capture_run
from zinc_rt.golden.embedded import STEMS, VOCABULARY
from zinc_rt.golden.format import read_arrays, write_golden
from zinc_rt.golden.odd_models import load_odd_models
from zinc_rt.model.gguf import digest_model, read_gguf
from zinc_rt.validate.command import main

# --- models and goldens -------------------------------------------------------------------------------------


@pytest.mark.rest
def test_default_run_compares_embedded_models_with_llama_cpp(run_validate: Validate, capsys: Capture) -> None:
    seen = run_validate()
    assert seen.exit == 0 and not seen.names_with_status("fail")
    stems = [*STEMS, *(row.name for row in load_odd_models() if row.quick)]
    assert {result["id"].split("/")[0] for result in seen.results} == {*stems, VOCABULARY.model.stem}
    assert [Path(model["path"]).stem for model in seen.report["model"]["models"]] == stems
    for stem in stems:
        kinds = {result["kind"] for result in seen.results if result["id"].startswith(f"{stem}/")}
        assert {"layer", "logits", "greedy", "decode", "tap", "prefill"} <= kinds
    assert not seen.names_with_status("skip"), "every router's choice is compared too"
    assert re.match(r"PASS  6 models: \d+ checks passed$", capsys.readouterr().out.splitlines()[-1])


def test_model_alone_is_compared_with_itself_and_blas(qwen3: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen3, *FEW)
    assert seen.exit == 0
    assert {result["reference"] for result in seen.results} == {"t_cpu", "t_cpu:float32-dequant"}
    assert all(result["measure"]["max_abs"] > 0 for result in seen.results if result["kind"] == "layer")


@pytest.mark.rest
def test_golden_supplies_tokens_steps_and_context(qwen3: str, run_validate: Validate, capsys: Capture) -> None:
    seen = run_validate("--model", qwen3, "--golden", golden_of(qwen3))
    assert seen.exit == 0 and seen.result("greedy")["measure"]["tokens"] == 8
    assert seen.report["ctx"] == 256
    assert "24 prompt tokens + 8 steps" in capsys.readouterr().out


def test_golden_of_another_model_is_rejected(qwen3: str, gemma4: str, capsys: Capture) -> None:
    assert "created for another model" in read_rejection(capsys, "--model", qwen3, "--golden", golden_of(gemma4))


def test_golden_of_same_shape_and_other_weights_is_rejected(qwen3: str, tmp_path: Path, capsys: Capture) -> None:
    arrays = read_arrays(Path(golden_of(qwen3)))
    meta = {"arch": "qwen3", "model_digest": "0" * 64, "command": "make it so"}
    write_golden(tmp_path / "g.npz", {n: a for n, a in arrays.items() if n != "meta"}, meta)
    output = read_rejection(capsys, "--model", qwen3, "--golden", str(tmp_path / "g.npz"))
    assert "digest 000000000000" in output and "make it so" not in output, "another engine's is not ours to make"


def test_truncated_golden_is_rejected(qwen3: str, tmp_path: Path, capsys: Capture) -> None:
    data = Path(golden_of(qwen3)).read_bytes()
    (tmp_path / "torn.npz").write_bytes(data[: len(data) // 2])
    output = read_rejection(capsys, "--model", qwen3, "--golden", str(tmp_path / "torn.npz"))
    assert "not a readable golden" in output


def test_golden_recorded_by_this_runtime_is_matched_bit_exactly(
    qwen35moe: str, tmp_path: Path, run_validate: Validate
) -> None:
    gguf, tokens, path = read_gguf(qwen35moe), [5, 6, 7], tmp_path / "own.npz"
    with Engine(gguf, CpuBackend("canonical-1")) as engine:
        output = capture_run(engine, tokens, Selection(("l_out-*", "ffn_moe_topk-*", "attn_norm-*")), steps=2)
    arrays = {
        "ids": np.array(tokens, np.int32),
        "logits": output.logits[:3],
        "l_out": np.stack(list(output.layers.values())),
        "greedy_tokens": np.array(output.generated, np.int32),
        "greedy_logits": output.logits[3:],
        **{label: value for label, value in output.values.items() if not label.startswith("l_out")},
    }
    meta = {"source": "zinc-rt t_cpu", "ordering": "canonical-1", "model_digest": digest_model(gguf)}
    write_golden(path, arrays, meta)
    seen = run_validate(
        "--model", qwen35moe, "--golden", str(path), "--resync", "--nodes", "attn_norm-*", "--no-cache"
    )
    assert seen.exit == 0 and set(seen.report["verdict"]["counts"]) == {"pass"}
    compared = [result for result in seen.results if result["kind"] != "greedy"]
    assert len(compared) == 4 * 3 + 4, "layers, experts, norms; logits, decode, untapped, stepwise"
    for result in compared:
        measured = result["measure"]
        for figures in (measured, measured.get("resync", measured)):
            assert (figures["max_abs"], figures["rel_rms"], figures["max_ulp"]) == (0.0, 0.0, 0)
    assert seen.result("logits")["measure"]["kl_max"] == 0.0
    assert all(result["limit"]["bits"] for result in compared)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--layers", "1", "--input", "nowhere.npz"], "no such file"),
        (["--layers", "1", "--input", "random:x"], "expected random:SEED"),
        (["--layers", "1", "--input", "random:"], "expected random:SEED"),
        (["--input", "random:7"], "layer 0 takes its input from the prompt"),
        (["--layers", ":2", "--input", "x.npz"], "layer 0 takes its input from the prompt"),
        (["--layers", "1:", "--steps", "2"], "greedy tokens require all layers"),
        (["--steps", "-1"], "expected 0 or more"),
        (["--steps", "254"], "the context has room for only 253 more tokens"),
        (["--ctx", "2"], "3 tokens do not fit the context of 2"),
        (["--ctx", "257"], "1 to 256 tokens"),
        (["--threads", "0"], "--threads 0"),
        (["--nodes", "atn_norm-*"], "--nodes atn_norm-*: no node"),
        (["--layers", "1", "--nodes", "attn_norm-2"], "no node of these layers matches"),
        (["--tiers", "t_cuda"], "tier t_cuda is not built in this version"),
        (["--tiers", "t_cpu,t2", "--device", "cpu"], "--device cpu supports t_cpu_native, t_cpu, vulkan, not t2"),
        (["--tiers", "gpu"], "unknown tier 'gpu'"),
        (["--tiers", "t_cpu,"], "unknown tier ''"),
        (["--tiers", "t_cpu:fast"], "t_cpu has no ordering or kernel set named 'fast'"),
        (["--tiers", "t_cpu,t_cpu"], "contains t_cpu twice with the same ordering"),
        (["--tiers", "t_cpu,t_cpu:canonical-1"], "contains t_cpu:canonical-1 twice with the same ordering"),
        (["--reference", "t1", "--device", "cpu"], "--device cpu supports t_cpu_native, t_cpu, vulkan, not t1"),
        (["--golden", "nowhere.npz"], "no such file"),
        (["--json", "/nowhere/r.json"], "the folder /nowhere does not exist"),
        (["--junit", "/nowhere/r.xml"], "the folder /nowhere does not exist"),
        (["--html", "."], "not a file name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_options_are_rejected_with_one_line(
    options: list[str], sentence: str, qwen3: str, capsys: Capture
) -> None:
    assert sentence in read_rejection(capsys, "--model", qwen3, "--tokens", "3,1,4", *options)


@pytest.mark.parametrize("tokens", ["512", "1,-1", "0,99999"])
def test_tokens_outside_the_vocabulary_are_rejected(tokens: str, qwen3: str, capsys: Capture) -> None:
    assert "is outside the vocabulary of 512" in read_rejection(capsys, "--model", qwen3, f"--tokens={tokens}")


@pytest.mark.parametrize("options", [["--tokens", ""], ["--prompt", ""]], ids=["tokens", "prompt"])
def test_empty_prompt_is_not_the_default_prompt(
    options: list[str], gemma4: str, qwen3: str, capsys: Capture
) -> None:
    output = read_rejection(capsys, "--model", qwen3, *options)
    assert "no prompt was given" in output or "no tokens" in output


def test_golden_of_other_tokens_is_rejected(qwen3: str, capsys: Capture) -> None:
    output = read_rejection(capsys, "--model", qwen3, "--golden", golden_of(qwen3), "--tokens", "1,2")
    assert "was created for a different prompt" in output


def test_random_input_has_no_golden(qwen3: str, capsys: Capture) -> None:
    output = read_rejection(capsys, "--model", qwen3, "--golden", golden_of(qwen3), "--layers", "1")
    assert "--golden cannot be combined with --input" in output


@pytest.mark.parametrize("flag", ["--golden", "--prompt", "--tokens"])
def test_single_model_option_requires_model_flag(flag: str, capsys: Capture) -> None:
    assert f"{flag} needs --model" in read_rejection(capsys, flag, "1")


# --- prompt, steps, nodes, tiers ----------------------------------------------------------------------------


def test_prompt_is_encoded_by_the_model_tokenizer(gemma4: str, run_validate: Validate, capsys: Capture) -> None:
    assert run_validate("--model", gemma4, "--prompt", "the cat", "--steps", "0").exit == 0
    assert re.search(r"  \d+ prompt tokens \+ 0 steps", capsys.readouterr().out)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_steps_are_compared_with_the_prompt(steps: int, qwen3: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--steps", str(steps))
    assert seen.exit == 0 and seen.result("logits")["measure"]["positions"] == 3 + steps


def test_steps_end_at_the_context_limit(qwen3: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--ctx", "4")
    assert seen.result("logits")["measure"]["positions"] == 4 and seen.report["ctx"] == 4


def test_nodes_matching_a_pattern_are_compared_too(qwen3: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen3, *TWO, *FEW, "--nodes", "Qcur-*", "--nodes", "result_norm")
    names = [name_of(result) for result in seen.results if result["kind"] == "node"]
    texts = [f"{name}-{layer}" for layer in range(3) for name in ("Qcur.matmul", "Qcur")]
    assert names == [*texts, "result_norm"], "before and after rope are two values"
    assert all(result["measure"]["max_ulp"] for result in seen.results if result["kind"] == "node")


def test_reference_defaults_to_t_cpu(qwen3: str, run_validate: Validate) -> None:
    tiers = ("--tiers", "t_cpu:float32-dequant,t_cpu")
    seen = run_validate("--model", qwen3, *tiers, *FEW)
    assert {(r["tier"], r["reference"]) for r in seen.results if r["kind"] == "layer"} == {
        ("t_cpu:float32-dequant", "t_cpu")
    }
    other = run_validate("--model", qwen3, *tiers, *FEW, "--reference", "t_cpu:float32-dequant")
    assert {(r["tier"], r["reference"]) for r in other.results if r["kind"] == "layer"} == {
        ("t_cpu", "t_cpu:float32-dequant")
    }


def test_named_reference_is_not_judged(qwen3: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen3, *FEW, "--reference", "t_cpu:float32-dequant")
    assert seen.exit == 0 and {r["tier"] for r in seen.results} == {"t_cpu"}
    assert {r["reference"] for r in seen.results if r["kind"] not in ("tap", "prefill")} == {
        "t_cpu:float32-dequant"
    }


def test_resync_of_some_layers_covers_each_of_them(qwen35moe: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen35moe, *TWO, "--tokens", "3,1,4", "--layers", "1:4", "--resync")
    layers = {name_of(r): r["measure"] for r in seen.results if r["kind"] == "layer"}
    assert list(layers) == ["l_out-1", "l_out-2", "l_out-3"]
    assert all(measured["resync"]["max_abs"] > 0 for measured in layers.values())
    assert layers["l_out-1"]["resync"]["max_abs"] == layers["l_out-1"]["max_abs"], "its input is the same"


@pytest.mark.rest
def test_requantised_activations_are_held_to_llama_cpp_distance(qwen3: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen3, "--golden", golden_of(qwen3), "--ordering", "canonical-1-q8")
    assert seen.exit == 0 and seen.result("logits")["status"] == "pass"
    assert seen.result("logits")["measure"]["median_max_abs"] <= seen.result("logits")["limit"]["median_max_abs"]
    assert {seen.result(f"l_out-{layer}")["status"] for layer in range(3)} == {"skip"}


# --- exit codes ---------------------------------------------------------------------------------------------


def test_result_without_a_limit_is_not_a_pass(qwen3: str, run_validate: Validate, capsys: Capture) -> None:
    seen = run_validate("--model", qwen3, *Q8)
    assert seen.exit == 77 and set(seen.report["verdict"]["counts"]) == {"skip"}
    assert all(seen.result(f"l_out-{layer}")["measure"]["max_abs"] > 0 for layer in (0, 1)), "shown all the same"
    assert capsys.readouterr().out.splitlines()[-1].startswith("NOTHING RAN  1 model: ")


@pytest.mark.rest
def test_strict_turns_a_skip_into_a_failure(
    qwen35moe: str, qwen3: str, run_validate: Validate, capsys: Capture
) -> None:
    with_skips = ("--model", qwen35moe, "--golden", golden_of(qwen35moe), "--layers", ":2")  # short of the head
    assert run_validate(*with_skips).exit == 0
    strict = run_validate(*with_skips, "--strict")
    assert strict.exit == 1 and strict.report["verdict"]["status"] == "FAIL"
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAIL  1 model: ")
    assert run_validate("--model", qwen3, *FEW, "--strict").exit == 0


def test_untapped_check_is_skipped_without_the_head(qwen3: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen3, "--tokens", "3,1,4", "--layers", "0:1")
    assert (
        seen.result("untapped")["status"] == "skip"
        and "do not reach the head" in seen.result("untapped")["reason"]
    )
    assert seen.result("stepwise")["status"] == "pass"


def test_ctrl_c_exits_130(qwen3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zinc_rt.validate.runner.capture_run", raise_interrupt)
    assert main(["--model", qwen3, *FEW, "--no-cache"]) == 130
