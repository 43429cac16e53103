"""zinc-rt validate: what its options mean, what it writes, and what it refuses."""

from __future__ import annotations

import json
import math
import re
import shlex
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import element, one_ulp_up
from seen import Planting, Seen, Validate, name_of

from zinc_rt.engine import Engine
from zinc_rt.golden.embedded import FOLDER, STEMS
from zinc_rt.golden.format import read_arrays, write_golden
from zinc_rt.model.gguf import digest, read_gguf
from zinc_rt.report import SCHEMA
from zinc_rt.ring.cpu import CpuBackend
from zinc_rt.validate.capture import Selection, capture
from zinc_rt.validate.command import main

Capture = pytest.CaptureFixture[str]
FEW = ("--tokens", "3,1,4", "--steps", "0")
TWO = ("--tiers", "t_cpu,t_cpu:float32-dequant")


def golden_of(model: str) -> str:
    return model.replace(".gguf", ".npz")


def l_out(model: str, tokens: list[int]) -> np.ndarray:
    """f32 [L, T, D], computed here."""
    with Engine(read_gguf(model), CpuBackend("canonical-1")) as engine:
        found = capture(engine, tokens, Selection(("l_out-*",)))
    return np.stack(list(found.values.values()))


def refused(capsys: Capture, *options: str) -> str:
    """What the command says of options it does not take."""
    capsys.readouterr()
    assert main(list(options)) == 2
    seen = capsys.readouterr()
    assert "PASS" not in seen.out and "FAIL" not in seen.out
    assert seen.err.startswith("zinc-rt validate: ")
    return seen.err


# --- models and goldens ------------------------------------------------------------------------------------


def test_without_a_model_the_embedded_ones_are_held_against_llama_cpp(validate: Validate, capsys: Capture) -> None:
    seen = validate()
    assert seen.exit == 0 and not seen.named("fail")
    assert {result["id"].split("/")[0] for result in seen.results} == set(STEMS)
    assert [Path(model["path"]).stem for model in seen.report["model"]["models"]] == list(STEMS)
    for stem in STEMS:
        kinds = {result["kind"] for result in seen.results if result["id"].startswith(f"{stem}/")}
        assert {"layer", "logits", "greedy", "decode", "tap", "prefill"} <= kinds
    assert re.match(r"PASS  3 models: \d+ checks passed, 4 skipped", capsys.readouterr().out.splitlines()[-1])


def test_a_model_alone_is_held_against_itself_and_blas(qwen3: str, validate: Validate) -> None:
    seen = validate("--model", qwen3, *FEW)
    assert seen.exit == 0
    assert {result["reference"] for result in seen.results} == {"t_cpu", "t_cpu:float32-dequant"}
    assert all(result["measure"]["max_abs"] > 0 for result in seen.results if result["kind"] == "layer")


def test_a_golden_brings_its_tokens_its_steps_and_its_context(
    qwen3: str, validate: Validate, capsys: Capture
) -> None:
    seen = validate("--model", qwen3, "--golden", golden_of(qwen3))
    assert seen.exit == 0 and seen.result("greedy")["measure"]["tokens"] == 8
    assert seen.report["ctx"] == 256
    assert "24 prompt tokens + 8 steps" in capsys.readouterr().out


def test_a_golden_of_another_model_is_refused(qwen3: str, gemma4: str, capsys: Capture) -> None:
    assert "made for another model" in refused(capsys, "--model", qwen3, "--golden", golden_of(gemma4))


def test_a_golden_of_the_same_shape_and_other_weights_is_refused(
    qwen3: str, tmp_path: Path, capsys: Capture
) -> None:
    arrays = read_arrays(Path(golden_of(qwen3)))
    meta = {"arch": "qwen3", "model_digest": "0" * 64, "command": "make it so"}
    write_golden(tmp_path / "g.npz", {n: a for n, a in arrays.items() if n != "meta"}, meta)
    said = refused(capsys, "--model", qwen3, "--golden", str(tmp_path / "g.npz"))
    assert "digest 000000000000" in said and "make it so" in said


def test_a_torn_golden_is_refused(qwen3: str, tmp_path: Path, capsys: Capture) -> None:
    whole = Path(golden_of(qwen3)).read_bytes()
    (tmp_path / "torn.npz").write_bytes(whole[: len(whole) // 2])
    said = refused(capsys, "--model", qwen3, "--golden", str(tmp_path / "torn.npz"))
    assert "not a readable golden" in said


def test_a_golden_of_this_runtimes_own_run_is_met_to_the_bit(
    qwen35moe: str, tmp_path: Path, validate: Validate
) -> None:
    gguf, tokens, path = read_gguf(qwen35moe), [5, 6, 7], tmp_path / "own.npz"
    with Engine(gguf, CpuBackend("canonical-1")) as engine:
        made = capture(engine, tokens, Selection(("l_out-*", "ffn_moe_topk-*", "attn_norm-*")), steps=2)
    arrays = {
        "ids": np.array(tokens, np.int32),
        "logits": made.logits[:3],
        "l_out": np.stack(list(made.layers.values())),
        "greedy_tokens": np.array(made.generated, np.int32),
        "greedy_logits": made.logits[3:],
        **{label: value for label, value in made.values.items() if not label.startswith("l_out")},
    }
    meta = {"source": "zinc-rt t_cpu", "ordering": "canonical-1", "model_digest": digest(gguf)}
    write_golden(path, arrays, meta)
    seen = validate(
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


# --- layers and what enters them ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "layers"),
    [("all", [0, 1, 2]), ("2", [2]), ("1:3", [1, 2]), (":2", [0, 1]), ("1:", [1, 2]), ("0", [0])],
)
def test_layers_are_those_named(text: str, layers: list[int], qwen3: str, validate: Validate) -> None:
    seen = validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--layers", text)
    assert seen.exit == 0
    assert seen.named("pass", "layer") == [f"l_out-{layer}" for layer in layers]
    assert seen.result("logits")["status"] == ("pass" if 2 in layers else "skip")


@pytest.mark.parametrize("text", ["3", "2:4", "1:1", "2:1", "x", ":", "", "-1", "1:2:3", "1,2"])
def test_layers_that_are_not_there_are_refused(text: str, qwen3: str, capsys: Capture) -> None:
    assert f"--layers {text}" in refused(capsys, "--model", qwen3, f"--layers={text}").replace("'", "")


@pytest.mark.parametrize(("model", "layers"), [("qwen3-q", "1:3"), ("qwen35moe-q", "2:4"), ("gemma4-q", "4:6")])
def test_layers_fed_by_the_oracle_compute_what_they_do_in_the_whole_model(
    model: str, layers: str, tmp_path: Path, validate: Validate
) -> None:
    """gemma4's layers 4 and 5 read the keys and values of layers that do not run otherwise."""
    path, tokens = str(FOLDER / f"{model}.gguf"), [3, 1, 4, 1, 5]
    whole = l_out(path, tokens)
    write_golden(
        tmp_path / "own.npz",
        {"ids": np.array(tokens, np.int32), "logits": np.zeros((5, 512), np.float32), "l_out": whole},
        {"source": "zinc-rt t_cpu", "ordering": "canonical-1"},
    )
    seen = validate(
        "--model",
        path,
        "--golden",
        str(tmp_path / "own.npz"),
        "--layers",
        layers,
        "--input",
        "oracle",
        "--no-cache",
    )
    first, last = map(int, layers.split(":"))
    assert seen.named("pass", "layer") == [f"l_out-{layer}" for layer in range(first, last)]
    assert all(result["measure"]["equal_bits"] for result in seen.results if result["kind"] == "layer")
    assert seen.report["details"]["inputs"] == {model: f"the oracle's l_out-{first - 1}"}


def test_a_golden_and_its_own_l_out_judge_a_part(qwen3: str, validate: Validate) -> None:
    golden = golden_of(qwen3)
    seen = validate("--model", qwen3, "--golden", golden, "--layers", "1:", "--input", golden)
    assert seen.exit == 0 and seen.named("pass", "layer") == ["l_out-1", "l_out-2"]
    assert seen.result("logits")["status"] == "pass"


def test_a_random_input_is_said_to_be_no_activation_of_the_model(
    qwen3: str, validate: Validate, capsys: Capture
) -> None:
    one, two, other = (
        validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--layers", "1", "--input", f"random:{seed}")
        for seed in (7, 7, 8)
    )
    assert "random:7, normal with σ 1, not the model's own activations" in capsys.readouterr().out
    histograms = [seen.result("l_out-1")["measure"] for seen in (one, two, other)]
    assert histograms[0] == histograms[1] != histograms[2]


@pytest.mark.parametrize("name", ["input", "l_out"])
def test_an_npz_feeds_the_first_layer(name: str, qwen3: str, tmp_path: Path, validate: Validate) -> None:
    whole = l_out(qwen3, [3, 1, 4])
    path = tmp_path / "x.npz"
    if name == "input":
        np.savez(path, input=whole[0])
    else:
        ids, logits = np.array([3, 1, 4], np.int32), np.zeros((3, 512), np.float32)
        np.savez(path, ids=ids, logits=logits, l_out=whole)
    fed, oracle = (
        validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--layers", "1", "--input", what)
        for what in (str(path), "oracle")
    )
    assert fed.exit == 0 and fed.result("l_out-1") == {**oracle.result("l_out-1"), "repro": ""}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--layers", "1", "--input", "nowhere.npz"], "no such file"),
        (["--layers", "1", "--input", "random:x"], "wanted random:SEED"),
        (["--layers", "1", "--input", "random:"], "wanted random:SEED"),
        (["--input", "random:7"], "layer 0 reads the prompt itself"),
        (["--layers", ":2", "--input", "x.npz"], "layer 0 reads the prompt itself"),
        (["--layers", "1:", "--steps", "2"], "greedy tokens need every layer"),
        (["--steps", "-1"], "wanted 0 or more"),
        (["--steps", "254"], "the context holds 253 after the prompt"),
        (["--ctx", "2"], "3 tokens do not fit the context of 2"),
        (["--ctx", "0"], "--ctx 0"),
        (["--ctx", "257"], "1 to 256 tokens"),
        (["--threads", "0"], "--threads 0"),
        (["--nodes", "atn_norm-*"], "--nodes atn_norm-*: no value is called so"),
        (["--layers", "1", "--nodes", "attn_norm-2"], "no value is called so in these layers"),
        (["--tiers", "t1"], "tier t1 is not built in this version"),
        (["--tiers", "t_cpu,t2"], "tier t2 is not built in this version"),
        (["--tiers", "gpu"], "no tier is called 'gpu'"),
        (["--tiers", "t_cpu,"], "no tier is called ''"),
        (["--tiers", "t_cpu:fast"], "no ordering 'fast'"),
        (["--tiers", "t_cpu,t_cpu"], "names t_cpu twice"),
        (["--tiers", "t_cpu,t_cpu:canonical-1"], "names t_cpu:canonical-1 twice, in one ordering"),
        (["--reference", "t1"], "not built in this version"),
        (["--device", "sim"], "the simulated device is not built in this version"),
        (["--golden", "nowhere.npz"], "no such golden"),
        (["--json", "/nowhere/r.json"], "there is no folder /nowhere"),
        (["--junit", "/nowhere/r.xml"], "there is no folder /nowhere"),
        (["--html", "."], "not a file name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused_with_a_sentence(
    options: list[str], sentence: str, qwen3: str, capsys: Capture
) -> None:
    assert sentence in refused(capsys, "--model", qwen3, "--tokens", "3,1,4", *options)


@pytest.mark.parametrize("tokens", ["512", "1,-1", "0,99999"])
def test_tokens_outside_the_vocabulary_are_refused(tokens: str, qwen3: str, capsys: Capture) -> None:
    assert "is outside the vocabulary of 512" in refused(capsys, "--model", qwen3, f"--tokens={tokens}")


@pytest.mark.parametrize("options", [["--tokens", ""], ["--prompt", ""]], ids=["tokens", "prompt"])
def test_an_empty_prompt_is_not_the_default_one(
    options: list[str], gemma4: str, qwen3: str, capsys: Capture
) -> None:
    said = refused(capsys, "--model", qwen3, *options)
    assert "nothing to run" in said or "no tokens" in said


def test_a_golden_made_for_other_tokens_is_refused(qwen3: str, capsys: Capture) -> None:
    said = refused(capsys, "--model", qwen3, "--golden", golden_of(qwen3), "--tokens", "1,2")
    assert "was made for other tokens" in said


def test_a_random_input_has_no_golden(qwen3: str, capsys: Capture) -> None:
    said = refused(capsys, "--model", qwen3, "--golden", golden_of(qwen3), "--layers", "1")
    assert "--input random is not one" in said


@pytest.mark.parametrize("flag", ["--golden", "--prompt", "--tokens"])
def test_what_belongs_to_one_model_needs_it_named(flag: str, capsys: Capture) -> None:
    assert f"{flag} goes with a --model" in refused(capsys, flag, "1")


@pytest.mark.parametrize("wrong", ["shape", "words", "layer", "neither", "torn", "bare"])
def test_an_npz_that_cannot_feed_the_layer_is_refused(
    wrong: str, qwen3: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "x.npz"
    if wrong == "shape":
        np.savez(path, input=np.zeros((2, 256), np.float32))
        sentence = "float32[2, 256], wanted numbers in [3, 256]"
    elif wrong == "words":
        np.savez(path, input=np.full((3, 256), "1.0"))
        sentence = "<U3[3, 256], wanted numbers"
    elif wrong == "torn":
        np.savez(path, input=np.zeros((3, 256), np.float32))
        path.write_bytes(path.read_bytes()[:1000])
        sentence = "not a readable golden"
    elif wrong == "bare":
        with path.open("wb") as file:
            np.save(file, np.zeros((3, 256), np.float32))
        sentence = "a bare array"
    elif wrong == "layer":
        ids, logits = np.arange(3, dtype=np.int32), np.zeros((3, 512), np.float32)
        np.savez(path, ids=ids, logits=logits, l_out=np.zeros((1, 3, 256), np.float32))
        sentence = "neither `input` nor l_out of layer 1 is in it"
    else:
        np.savez(path, something=np.zeros(3))
        sentence = "no array called logits"
    said = refused(capsys, "--model", qwen3, "--tokens", "1,2,3", "--layers", "2", "--input", str(path))
    assert sentence in said


# --- prompt, steps, nodes, tiers ---------------------------------------------------------------------------


def test_a_prompt_goes_through_the_models_tokenizer(gemma4: str, validate: Validate, capsys: Capture) -> None:
    assert validate("--model", gemma4, "--prompt", "the cat", "--steps", "0").exit == 0
    assert re.search(r"  \d+ prompt tokens \+ 0 steps", capsys.readouterr().out)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_steps_are_compared_with_the_prompt(steps: int, qwen3: str, validate: Validate) -> None:
    seen = validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--steps", str(steps))
    assert seen.exit == 0 and seen.result("logits")["measure"]["positions"] == 3 + steps


def test_steps_end_where_the_context_does(qwen3: str, validate: Validate) -> None:
    seen = validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--ctx", "4")
    assert seen.result("logits")["measure"]["positions"] == 4 and seen.report["ctx"] == 4


def test_nodes_named_by_a_pattern_are_compared_too(qwen3: str, validate: Validate) -> None:
    seen = validate("--model", qwen3, *TWO, *FEW, "--nodes", "Qcur-*", "--nodes", "result_norm")
    names = [name_of(result) for result in seen.results if result["kind"] == "node"]
    each = [f"{name}-{layer}" for layer in range(3) for name in ("Qcur.matmul", "Qcur")]
    assert names == [*each, "result_norm"], "before and after rope are two values"
    assert all(result["measure"]["max_ulp"] for result in seen.results if result["kind"] == "node")


def test_the_reference_is_t_cpu_unless_another_is_named(qwen3: str, validate: Validate) -> None:
    tiers = ("--tiers", "t_cpu:float32-dequant,t_cpu")
    seen = validate("--model", qwen3, *tiers, *FEW)
    assert {(r["tier"], r["reference"]) for r in seen.results if r["kind"] == "layer"} == {
        ("t_cpu:float32-dequant", "t_cpu")
    }
    other = validate("--model", qwen3, *tiers, *FEW, "--reference", "t_cpu:float32-dequant")
    assert {(r["tier"], r["reference"]) for r in other.results if r["kind"] == "layer"} == {
        ("t_cpu", "t_cpu:float32-dequant")
    }


def test_a_reference_that_is_not_judged_itself(qwen3: str, validate: Validate) -> None:
    seen = validate("--model", qwen3, *FEW, "--reference", "t_cpu:float32-dequant")
    assert seen.exit == 0 and {r["tier"] for r in seen.results} == {"t_cpu"}
    assert {r["reference"] for r in seen.results if r["kind"] != "tap"} == {"t_cpu:float32-dequant"}


def test_resync_of_some_layers_covers_each_of_them(qwen35moe: str, validate: Validate) -> None:
    seen = validate("--model", qwen35moe, *TWO, "--tokens", "3,1,4", "--layers", "1:4", "--resync")
    layers = {name_of(r): r["measure"] for r in seen.results if r["kind"] == "layer"}
    assert list(layers) == ["l_out-1", "l_out-2", "l_out-3"]
    assert all(measured["resync"]["max_abs"] > 0 for measured in layers.values())
    assert layers["l_out-1"]["resync"]["max_abs"] == layers["l_out-1"]["max_abs"], "its input is the same"


def test_requantised_activations_are_held_to_llama_cpps_own_distance(qwen3: str, validate: Validate) -> None:
    seen = validate("--model", qwen3, "--golden", golden_of(qwen3), "--ordering", "canonical-1-q8")
    assert seen.exit == 0 and seen.result("logits")["status"] == "pass"
    assert seen.result("logits")["measure"]["median_max_abs"] <= seen.result("logits")["limit"]["median_max_abs"]
    assert {seen.result(f"l_out-{layer}")["status"] for layer in range(3)} == {"skip"}


# --- exit codes --------------------------------------------------------------------------------------------

# no limit between these, and short of the head nothing is read untapped
Q8 = ("--tiers", "t_cpu,t_cpu:canonical-1-q8", "--tokens", "3,1,4", "--layers", ":2")


def test_what_is_shown_without_a_limit_is_no_pass(qwen3: str, validate: Validate, capsys: Capture) -> None:
    seen = validate("--model", qwen3, *Q8)
    assert seen.exit == 77 and set(seen.report["verdict"]["counts"]) == {"skip"}
    assert all(seen.result(f"l_out-{layer}")["measure"]["max_abs"] > 0 for layer in (0, 1)), "shown all the same"
    assert capsys.readouterr().out.splitlines()[-1].startswith("NOTHING RAN  1 model: ")


def test_strict_turns_a_skip_into_a_failure(
    qwen35moe: str, qwen3: str, validate: Validate, capsys: Capture
) -> None:
    with_skips = ("--model", qwen35moe, "--golden", golden_of(qwen35moe))
    assert validate(*with_skips).exit == 0
    strict = validate(*with_skips, "--strict")
    assert strict.exit == 1 and strict.report["verdict"]["status"] == "FAIL"
    assert capsys.readouterr().out.splitlines()[-1].startswith("FAIL  1 model: ")
    assert validate("--model", qwen3, *FEW, "--strict").exit == 0


def test_a_layer_short_of_the_head_has_nothing_to_read_untapped(qwen3: str, validate: Validate) -> None:
    seen = validate("--model", qwen3, "--tokens", "3,1,4", "--layers", "0:1")
    assert (
        seen.result("untapped")["status"] == "skip"
        and "do not reach the head" in seen.result("untapped")["reason"]
    )
    assert seen.result("stepwise")["status"] == "pass"


def test_ctrl_c_is_130(qwen3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zinc_rt.validate.run.capture", interrupted)
    assert main(["--model", qwen3, *FEW, "--no-cache"]) == 130


# --- what it writes ----------------------------------------------------------------------------------------


def test_json_on_standard_output_is_all_there_is(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, *FEW, "--json", "-"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["schema"] == SCHEMA and body["command"] == "validate" and body["ordering"] == "canonical-1"
    assert {
        "schema", "command", "version", "started", "wall_seconds", "device", "model", "ordering", "ctx",
        "shortcuts", "results", "verdict",
    } <= body.keys()  # fmt: skip
    assert {"name", "arch", "simulated", "profile", "kernel", "firmware"} <= body["device"].keys()
    assert body["model"] == {"path": qwen3, "digest": digest(read_gguf(qwen3)), "architecture": "qwen3"}
    for result in body["results"]:
        assert {
            "id", "kind", "tier", "reference", "status", "reason", "measure", "limit", "first_bad", "cause",
            "advice", "repro", "artifacts",
        } == result.keys()  # fmt: skip
    assert body["verdict"] == {"status": "PASS", "exit": 0, "counts": {"pass": len(body["results"])}}


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, float):
        yield value


@pytest.fixture
def broken(qwen3: str, tmp_path: Path, plant: Planting) -> tuple[Seen, str, str]:
    """A run in which l_out-1 has a NaN, and its JUnit and HTML."""
    plant(element("l_out-1", 2, 17, lambda value: math.nan))
    json_path, junit, html = (tmp_path / name for name in ("r.json", "r.xml", "r.html"))
    written = ["--json", str(json_path), "--junit", str(junit), "--html", str(html)]
    code = main(["--model", qwen3, "--tiers", "t1,t_cpu", *FEW, "--resync", *written])
    return Seen(code, json.loads(json_path.read_text())), junit.read_text(), html.read_text()


def test_a_nan_survives_json_as_a_word(broken: tuple[Seen, str, str]) -> None:
    seen, _, _ = broken
    assert seen.exit == seen.report["verdict"]["exit"] == 1
    assert seen.result("l_out-1")["first_bad"]["got"] == "nan"
    assert all(math.isfinite(value) for value in numbers(seen.report))


def test_junit_counts_what_the_report_does(broken: tuple[Seen, str, str]) -> None:
    seen, junit, _ = broken
    suite = Xml.fromstring(junit)
    cases, counts = suite.findall("testcase"), seen.report["verdict"]["counts"]
    assert int(suite.attrib["tests"]) == len(cases) == len(seen.results)
    assert int(suite.attrib["failures"]) == len(suite.findall(".//failure")) == counts["fail"]
    assert int(suite.attrib["skipped"]) == len(suite.findall(".//skipped")) == counts.get("skip", 0)
    assert [case.attrib["name"] for case in cases] == [name_of(result) for result in seen.results]
    text = suite.find("testcase[@name='l_out-1']/failure").text  # type: ignore[union-attr]
    assert text is not None and "'token': 2, 'dim': 17" in text and "repro zinc-rt validate" in text


def test_a_skip_in_junit_has_its_reason(qwen3: str, tmp_path: Path) -> None:
    path = tmp_path / "r.xml"
    assert main(["--model", qwen3, *Q8, "--junit", str(path)]) == 77
    suite = Xml.fromstring(path.read_text())
    assert int(suite.attrib["skipped"]) == int(suite.attrib["tests"]) == 4
    reasons = [skipped.attrib["message"] for skipped in suite.iter("skipped")]
    assert all(reasons) and "re-quantised" in reasons[0] and "do not reach the head" in reasons[-1]


class Page(HTMLParser):
    """Checks that tags close in order, and keeps text and references."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.references: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_stands_alone_and_says_the_verdict(broken: tuple[Seen, str, str]) -> None:
    _, _, html = broken
    page = Page(html)
    words = "".join(page.text)
    assert "FAIL" in words and "token 2, dim 17: nan" in words and "zinc-rt validate --model" in words
    assert page.references == [] and "://" not in html and "@import" not in html and "<script" not in html


def test_a_page_of_all_embedded_models_parses(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    assert main(["--html", str(path)]) == 0
    words = "".join(Page(path.read_text()).text)
    assert "PASS" in words and all(stem in words for stem in STEMS)
    assert "re-quantised activations" in words


def test_what_a_name_holds_is_text_on_the_page(qwen3: str, tmp_path: Path) -> None:
    odd = tmp_path / "<b>&\"'.gguf"
    odd.write_bytes(Path(qwen3).read_bytes())
    html, junit = tmp_path / "r.html", tmp_path / "r.xml"
    assert main(["--model", str(odd), *FEW, "--html", str(html), "--junit", str(junit)]) == 0
    assert "<b>&\"'" in "".join(Page(html.read_text()).text)
    assert Xml.fromstring(junit.read_text()).find("testcase") is not None


def test_a_full_disk_is_one_sentence(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, *FEW, "--html", "/dev/full"]) == 2
    assert "/dev/full: cannot write" in capsys.readouterr().err


# --- the command that shows it again -----------------------------------------------------------------------


def repro_of(seen: Seen) -> list[str]:
    failed = next(result for result in seen.results if result["status"] == "fail")
    program, name, *options = shlex.split(failed["repro"])
    assert (program, name) == ("zinc-rt", "validate")
    return options


def measured(seen: Seen) -> dict[str, Any]:
    return {result["id"]: (result["status"], result["measure"], result["first_bad"]) for result in seen.results}


@pytest.mark.parametrize(
    "options",
    [
        ["--tiers", "t1"],
        ["--tiers", "t1", "--ordering", "float32-dequant", "--ctx", "64"],
        ["--tiers", "t1,t_cpu", "--layers", "1:", "--input", "random:3", "--nodes", "Qcur-*", "--resync"],
        ["--tiers", "t1", "--layers", "1:", "--input", "oracle"],
        ["--tiers", "t1", "--reference", "t_cpu", "--steps", "0"],
    ],
    ids=" ".join,
)
def test_an_embedded_models_repro_measures_the_same(
    options: list[str], plant: Planting, validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zinc_rt.golden.embedded.STEMS", ("qwen3-q",))
    plant(element("l_out-2", 1, 3, lambda value: value + 1))
    seen = validate(*options)
    assert seen.exit == 1
    assert measured(validate(*repro_of(seen))) == measured(seen)


def test_a_prompt_is_quoted_for_the_shell(gemma4: str, plant: Planting, validate: Validate) -> None:
    plant(element("l_out-2", 1, 3, one_ulp_up))
    seen = validate("--model", gemma4, "--tiers", "t1,t_cpu", "--prompt", "the cat's $(hat)", "--steps", "0")
    assert measured(validate(*repro_of(seen))) == measured(seen)


# --- the table ---------------------------------------------------------------------------------------------


def test_a_reason_many_rows_share_is_one_line(qwen35moe: str, capsys: Capture) -> None:
    assert main(["--model", qwen35moe, "--golden", golden_of(qwen35moe)]) == 0
    lines = capsys.readouterr().out.splitlines()
    skipped = [line for line in lines if line.startswith("skip  ")]
    assert skipped == ["skip  ffn_moe_topk-0..3: the golden's experts were chosen from re-quantised activations"]


@pytest.mark.parametrize("options", [[], ["--resync"]], ids=["plain", "resync"])
def test_figures_and_status_fit_a_hundred_columns(
    options: list[str], qwen35moe: str, plant: Planting, capsys: Capture
) -> None:
    plant(element("ffn_out-1", 2, 17, lambda value: value + 100))
    assert main(["--model", qwen35moe, "--tiers", "t1,t_cpu", *FEW, *options]) == 1
    rows = [line for line in capsys.readouterr().out.splitlines() if re.search(r"  (FAIL|pass)\b", line)]
    assert rows and max(re.search(r"  (FAIL|pass)\b", row).end() for row in rows) <= 100  # type: ignore[union-attr]


def test_two_values_are_told_apart(qwen3: str, plant: Planting, capsys: Capture) -> None:
    plant(element("l_out-1", 2, 17, one_ulp_up))
    main(["--model", qwen3, "--tiers", "t1,t_cpu", *FEW])
    got, want = re.search(r"token 2, dim 17: (\S+), not (\S+)", capsys.readouterr().out).groups()  # type: ignore[union-attr]
    assert got != want
