"""zinc-rt validate --layers and --input: a part of a model, and what enters it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from seen import TWO, Capture, Validate, golden_of, read_rejection

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.capture import Selection, capture_run
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.format import write_golden
from zinc_rt.model.gguf import read_gguf


def layer_outputs(model: str, tokens: list[int]) -> np.ndarray:
    """f32 [L, T, D], computed here."""
    with Engine(read_gguf(model), CpuBackend("canonical-1")) as engine:
        result = capture_run(engine, tokens, Selection(("l_out-*",)))
    return np.stack(list(result.values.values()))


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize(
    ("text", "layers"),
    [("all", [0, 1, 2]), ("2", [2]), ("1:3", [1, 2]), (":2", [0, 1]), ("1:", [1, 2]), ("0", [0])],
)
def test_only_named_layers_are_compared(text: str, layers: list[int], qwen3: str, run_validate: Validate) -> None:
    seen = run_validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--layers", text)
    assert seen.exit == 0
    assert seen.names_with_status("pass", "layer") == [f"l_out-{layer}" for layer in layers]
    assert seen.result("logits")["status"] == ("pass" if 2 in layers else "skip")


@pytest.mark.parametrize("text", ["3", "2:4", "1:1", "2:1", "x", ":", "", "-1", "1:2:3", "1,2"])
def test_nonexistent_layers_are_rejected(text: str, qwen3: str, capsys: Capture) -> None:
    assert f"--layers {text}" in read_rejection(capsys, "--model", qwen3, f"--layers={text}").replace("'", "")


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("model", "layers"), [("qwen3-q", "1:3"), ("qwen35moe-q", "2:4"), ("gemma4-q", "4:6")])
def test_layers_fed_by_the_oracle_match_the_whole_model(
    model: str, layers: str, tmp_path: Path, run_validate: Validate
) -> None:
    """gemma4's layers 4 and 5 read the keys and values of layers that do not run otherwise."""
    path, tokens = str(FOLDER / f"{model}.gguf"), [3, 1, 4, 1, 5]
    whole = layer_outputs(path, tokens)
    write_golden(
        tmp_path / "own.npz",
        {"ids": np.array(tokens, np.int32), "logits": np.zeros((5, 512), np.float32), "l_out": whole},
        {"source": "zinc-rt t_cpu", "ordering": "canonical-1"},
    )
    seen = run_validate(
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
    assert seen.names_with_status("pass", "layer") == [f"l_out-{layer}" for layer in range(first, last)]
    assert all(result["measure"]["equal_bits"] for result in seen.results if result["kind"] == "layer")
    assert seen.report["details"]["inputs"] == {model: f"the oracle's l_out-{first - 1}"}


@pytest.mark.rest
def test_golden_and_its_l_out_validate_a_part_of_the_model(qwen3: str, run_validate: Validate) -> None:
    golden = golden_of(qwen3)
    seen = run_validate("--model", qwen3, "--golden", golden, "--layers", "1:", "--input", golden)
    assert seen.exit == 0 and seen.names_with_status("pass", "layer") == ["l_out-1", "l_out-2"]
    assert seen.result("logits")["status"] == "pass"


@pytest.mark.rest
def test_random_input_is_labelled_as_not_a_real_activation(
    qwen3: str, run_validate: Validate, capsys: Capture
) -> None:
    one, two, other = (
        run_validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--layers", "1", "--input", f"random:{seed}")
        for seed in (7, 7, 8)
    )
    assert "random:7, normal with σ 1, not the model's own activations" in capsys.readouterr().out
    histograms = [seen.result("l_out-1")["measure"] for seen in (one, two, other)]
    assert histograms[0] == histograms[1] != histograms[2]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name", ["input", "l_out"])
def test_npz_feeds_the_first_layer(name: str, qwen3: str, tmp_path: Path, run_validate: Validate) -> None:
    whole = layer_outputs(qwen3, [3, 1, 4])
    path = tmp_path / "x.npz"
    if name == "input":
        np.savez(path, input=whole[0])
    else:
        ids, logits = np.array([3, 1, 4], np.int32), np.zeros((3, 512), np.float32)
        np.savez(path, ids=ids, logits=logits, l_out=whole)
    fed, oracle = (
        run_validate("--model", qwen3, *TWO, "--tokens", "3,1,4", "--layers", "1", "--input", what)
        for what in (str(path), "oracle")
    )
    assert fed.exit == 0 and fed.result("l_out-1") == {**oracle.result("l_out-1"), "repro": ""}


@pytest.mark.parametrize("arrays", ["shape", "words", "layer", "neither", "torn", "bare"])
def test_npz_that_cannot_feed_the_layer_is_rejected(
    arrays: str, qwen3: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "x.npz"
    if arrays == "shape":
        np.savez(path, input=np.zeros((2, 256), np.float32))
        sentence = "float32[2, 256], expected numbers in [3, 256]"
    elif arrays == "words":
        np.savez(path, input=np.full((3, 256), "1.0"))
        sentence = "<U3[3, 256], expected numbers"
    elif arrays == "torn":
        np.savez(path, input=np.zeros((3, 256), np.float32))
        path.write_bytes(path.read_bytes()[:1000])
        sentence = "not a readable golden"
    elif arrays == "bare":
        with path.open("wb") as file:
            np.save(file, np.zeros((3, 256), np.float32))
        sentence = "a single array"
    elif arrays == "layer":
        ids, logits = np.arange(3, dtype=np.int32), np.zeros((3, 512), np.float32)
        np.savez(path, ids=ids, logits=logits, l_out=np.zeros((1, 3, 256), np.float32))
        sentence = "contains neither `input` nor l_out of layer 1"
    else:
        np.savez(path, something=np.zeros(3))
        sentence = "array logits is missing"
    output = read_rejection(capsys, "--model", qwen3, "--tokens", "1,2,3", "--layers", "2", "--input", str(path))
    assert sentence in output
