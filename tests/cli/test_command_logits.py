"""zinc-rt logits: what is in the file, and when there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.cli.logits import main
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import Pair, list_embedded_pairs
from zinc_rt.model.gguf import read_gguf

Capture = pytest.CaptureFixture[str]
TOKENS = [5, 6, 7, 8, 9]


def run_logits(model: str, out: Path, *options: str) -> dict[str, np.ndarray]:
    assert main(["--model", model, "--tokens", "5,6,7,8,9", "--out", str(out), *options]) == 0
    with np.load(out) as arrays:
        return dict(arrays)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("pair", list_embedded_pairs(), ids=lambda pair: pair.model.stem)
def test_written_arrays_equal_engine_output(pair: Pair, tmp_path: Path) -> None:
    arrays = run_logits(str(pair.model), tmp_path / "x.npz")
    with Engine(read_gguf(pair.model), CpuBackend("canonical-1")) as engine:
        logits, layers, width = engine.forward(TOKENS), engine.model.layers, engine.model.width
    assert list(arrays) == ["ids", "logits", "l_out"]
    assert arrays["ids"].dtype == np.int32 and arrays["ids"].tolist() == TOKENS
    assert arrays["logits"].dtype == arrays["l_out"].dtype == np.float32
    np.testing.assert_array_equal(arrays["logits"], logits)
    assert arrays["l_out"].shape == (layers, len(TOKENS), width)
    assert all(layer.any() for layer in arrays["l_out"])
    assert not (arrays["l_out"][1:] == arrays["l_out"][:-1]).all(axis=(1, 2)).any()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("pair", list_embedded_pairs(), ids=lambda pair: pair.model.stem)
def test_token_by_token_run_is_bit_identical(pair: Pair, tmp_path: Path) -> None:
    once = run_logits(str(pair.model), tmp_path / "once.npz")
    steps = run_logits(str(pair.model), tmp_path / "steps.npz", "--prefill", "stepwise")
    for name in once:
        np.testing.assert_array_equal(once[name], steps[name])


def test_only_selected_rows_and_layers_are_written(qwen3: str, tmp_path: Path) -> None:
    everything = run_logits(qwen3, tmp_path / "all.npz")
    last = run_logits(qwen3, tmp_path / "last.npz", "--rows", "last", "--layers", "none")
    assert list(last) == ["ids", "logits"]
    np.testing.assert_array_equal(last["logits"], everything["logits"][-1:])


def test_chunks_of_a_long_prompt_are_concatenated(tmp_path: Path) -> None:
    from zinc_rt.golden.tiny_models.writer import write_tiny

    write_tiny(tmp_path / "m.gguf", "qwen35", context=600, layers=4)
    ids = ",".join(str(index % 500) for index in range(515))
    options = ["--model", str(tmp_path / "m.gguf"), "--tokens", ids, "--ordering", "float32-dequant"]
    assert main([*options, "--out", str(tmp_path / "x.npz")]) == 0
    with np.load(tmp_path / "x.npz") as arrays:
        assert arrays["logits"].shape == (515, 512) and arrays["l_out"].shape == (4, 515, 64)
        assert np.abs(arrays["l_out"]).max(axis=(0, 2)).all()


def test_report_lists_the_arrays(qwen3: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "x.npz"
    run_logits(qwen3, out, "--json", "-", "--ordering", "float32-dequant")
    seen = capsys.readouterr()
    body = json.loads(seen.out)
    assert body["schema"] == "zinc-rt-report/1" and body["ordering"] == "float32-dequant"
    assert body["details"]["arrays"]["logits"] == {"dtype": "float32", "shape": [5, 512]}
    assert body["results"][0]["artifacts"] == [str(out)]
    assert f"wrote {out}" in seen.err


def test_text_prompt_is_tokenized(gemma4: str, tmp_path: Path) -> None:
    out = tmp_path / "x.npz"
    assert main(["--model", gemma4, "--prompt", "the cat", "--out", str(out)]) == 0
    with np.load(out) as arrays:
        assert arrays["ids"][0] == 2  # the file's <bos>


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--tokens", "1,512"], "token id 512 is outside the vocabulary of 512"),
        (["--tokens", "1,2,3", "--ctx", "2"], "do not fit the context of 2"),
        (["--tokens", ""], "no prompt was given"),
        (["--tokens", "1", "--json", "/nowhere/r.json"], "the folder /nowhere does not exist"),
        (["--tokens", "1", "--tier", "t1"], "tier t1: no AMD GPU was found"),
    ],
)
def test_failed_command_leaves_no_file(
    options: list[str], sentence: str, qwen3: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["--model", qwen3, *options, "--out", str(tmp_path / "x.npz")]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("/nowhere/x.npz", "/nowhere/x.npz: cannot write: the folder /nowhere does not exist"),
        ("/dev/full", "/dev/full: cannot write: No space left on device"),
        (".", "not a file name"),
        ("-", "which is reserved for the report"),
    ],
)
def test_unwritable_output_prints_one_line(out: str, sentence: str, qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--tokens", "1", "--out", out]) == 2
    assert sentence in capsys.readouterr().err


def test_failed_run_keeps_previous_output_file(
    qwen3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x.npz"
    run_logits(qwen3, out)
    before = out.read_bytes()

    def write_then_interrupt(file, **arrays: np.ndarray) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", write_then_interrupt)
    assert main(["--model", qwen3, "--tokens", "1", "--out", str(out)]) == 130
    assert out.read_bytes() == before and list(tmp_path.iterdir()) == [out]


def test_vocabulary_only_file_has_no_logits(vocabulary_only_model: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["--model", vocabulary_only_model, "--tokens", "1", "--out", str(tmp_path / "x.npz")]) == 2
    assert "the file contains a tokenizer but no tensors" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1,x", "1 2", "1,,2", "1.5"])
def test_malformed_token_list_is_rejected(text: str, qwen3: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--model", qwen3, "--tokens", text, "--out", "x.npz"])
    assert exit.value.code == 2
    assert f"{text!r} is not a list of token ids; expected for example 1,2,3" in capsys.readouterr().err


def test_unknown_architecture_is_named(
    damaged_model: Callable[[bytes, bytes], str], tmp_path: Path, capsys: Capture
) -> None:
    model = damaged_model(b"qwen3", b"qwenX")
    assert main(["--model", model, "--tokens", "1", "--out", str(tmp_path / "x.npz")]) == 2
    assert "architecture 'qwenX' is not supported by this version" in capsys.readouterr().err
