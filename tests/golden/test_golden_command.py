"""zinc-rt-golden as a user meets it: make, check, list, import, and what it says when something is wrong."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.golden.format import read_golden
from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES
from zinc_rt.validate.goldens.command import main

DOC = Path(__file__).resolve().parents[2] / "docs" / "golden.md"


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    assert main(["make", "--tiny", "qwen3moe", "--seed", "3", "-o", str(path)]) == 0
    return path


@pytest.fixture
def golden_path(model_path: Path) -> Path:
    path = model_path.with_name("g.npz")
    line = ["make", "--model", str(model_path), "--tokens", "5,17,300", "--steps", "2", "--nodes", "attn_norm-*"]
    assert main([*line, "-o", str(path)]) == 0
    return path


def tamper_golden(golden: Path, **change: Any) -> Path:
    """Write a copy in the same folder with arrays changed by functions, or meta entries replaced by values."""
    with np.load(golden) as archive:
        arrays = {name: archive[name] for name in archive.files}
    meta = json.loads(str(arrays["meta"])) | change.pop("meta", {})
    for name, function in change.items():
        arrays[name.replace("__", "-")] = function(arrays[name.replace("__", "-")].copy())
    path = golden.with_name("tampered.npz")
    np.savez(path, **{**arrays, "meta": np.array(json.dumps(meta))})  # type: ignore[arg-type]
    return path


def change_one_bit(*index: int) -> Any:
    """Replace one element with the next larger float32 or the next id."""

    def next_value(array: np.ndarray) -> np.ndarray:
        one_up = np.nextafter(array[index], np.float32(np.inf)) if array.dtype.kind == "f" else array[index] ^ 1
        array[index] = one_up
        return array

    return next_value


# --- make ------------------------------------------------------------------------------------------------------


def test_golden_contains_all_arrays_and_provenance(golden_path: Path, capsys: Any) -> None:
    result = read_golden(golden_path)
    assert result.source == "zinc-rt t_cpu"
    assert result.logits.shape == (3, 512)
    assert result.l_out is not None and result.l_out.shape == (2, 3, 64)
    assert result.greedy_tokens is not None and result.greedy_tokens.shape == (2,)
    assert result.greedy_tokens[0] == result.logits[-1].argmax()
    assert sorted(result.experts) == [0, 1]
    assert sorted(result.nodes) == ["attn_norm-0", "attn_norm-1", "result_norm"]
    meta = result.meta
    assert (meta["format"], meta["ordering"], meta["arch"], meta["n_ctx"]) == (1, "canonical-1", "qwen3moe", 256)
    assert len(meta["model_digest"]) == len(meta["code"]) == 64
    assert meta["command"].startswith("zinc-rt golden make --model ")
    assert "--tokens 5,17,300 --steps 2" in meta["command"]


def test_same_arguments_make_the_same_model(model_path: Path) -> None:
    renamed = model_path.with_name("again.gguf")
    assert main(["make", "--tiny", "qwen3moe", "--seed", "3", "-o", str(renamed)]) == 0
    assert renamed.read_bytes() == model_path.read_bytes()
    assert main(["make", "--tiny", "qwen3moe", "--seed", "4", "-o", str(renamed), "--force"]) == 0
    assert renamed.read_bytes() != model_path.read_bytes()


@pytest.mark.rest
def test_all_tiny_models_are_written_to_one_folder(tmp_path: Path, capsys: Any) -> None:
    assert main(["make", "--tiny", "all", "-o", str(tmp_path / "new" / "models")]) == 0
    names = {path.name for path in (tmp_path / "new" / "models").iterdir()}
    assert names == {f"tiny-{name}-f32.gguf" for name in ARCHITECTURES}
    assert main(["make", "--tiny", "all", "-o", str(tmp_path / "new" / "models")]) == 2
    assert "the file already exists" in capsys.readouterr().err
    assert main(["make", "--tiny", "help"]) == 0
    assert capsys.readouterr().out.split() == list(ARCHITECTURES)


def test_prompt_is_tokenized_by_the_model(model_path: Path) -> None:
    out = model_path.with_name("g.npz")
    assert (
        main(["make", "--model", str(model_path), "--prompt", "The quick fox", "--steps", "0", "-o", str(out)])
        == 0
    )
    assert 1 < len(read_golden(out).ids) < 14
    assert main(["check", str(out)]) == 0


# --- check -----------------------------------------------------------------------------------------------------


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("ordering", ["canonical-1", "canonical-1-q8", "float32-dequant"])
def test_new_golden_passes_check(ordering: str, model_path: Path, capsys: Any) -> None:
    out = model_path.with_name("g.npz")
    line = ["make", "--model", str(model_path), "--tokens", "5,17,300", "--steps", "2", "--ordering", ordering]
    assert main([*line, "-o", str(out)]) == 0
    capsys.readouterr()
    assert main(["check", str(out), "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"]["counts"] == {"pass": len(report["results"])}
    kinds = {result["kind"] for result in report["results"]}
    assert kinds - {"isolation"} == {"model", "layer", "experts", "node", "logits", "greedy", "decode"}
    bits = [result["limit"].get("bits") for result in report["results"] if result["kind"] == "logits"]
    assert bits == [None if ordering == "float32-dequant" else True]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("array", "index", "place"),
    [
        ("logits", (1, 7), r"logits .*token 1, dim 7"),
        ("l_out", (1, 2, 5), r"l_out-1 .*token 2, dim 5"),
        ("attn_norm__1", (0, 3), r"attn_norm-1 .*token 0, dim 3"),
        ("result_norm", (2, 9), r"result_norm .*token 2, dim 9"),
        ("ffn_moe_topk__0", (1, 0), r"ffn_moe_topk-0 .*token 1, dim 0"),
        ("greedy_tokens", (1,), r"greedy .*token 1"),
        ("greedy_logits", (1, 11), r"decode .*token 1, dim 11"),
    ],
)
def test_single_bit_change_is_found_and_named(
    array: str, index: tuple[int, ...], place: str, golden_path: Path, capsys: Any
) -> None:
    path = tamper_golden(golden_path, **{array: change_one_bit(*index)})
    assert main(["check", str(path)]) == 1
    output = capsys.readouterr().out
    assert re.search(place, output), output
    assert f"repro  zinc-rt golden check {path}" in output
    assert "next  zinc-rt golden make --model" in output
    assert output.splitlines()[-1].startswith("FAIL  1 golden: ")


def test_golden_of_another_model_is_rejected(golden_path: Path, capsys: Any) -> None:
    other = golden_path.with_name("other.gguf")
    main(["make", "--tiny", "qwen3moe", "--seed", "9", "-o", str(other)])
    assert main(["check", str(golden_path), "--model", str(other)]) == 1
    output = capsys.readouterr().out
    assert "made for another model: m.gguf (qwen3moe, " in output and "other.gguf is qwen3moe, " in output
    assert "next  use its own model, m.gguf (qwen3moe, " in output


def test_wrong_model_never_suggests_remaking_a_foreign_golden(golden_path: Path, capsys: Any) -> None:
    """Not where the digest differs, and not where there is none and the architecture does."""
    gemma = golden_path.with_name("gemma.gguf")
    main(["make", "--tiny", "gemma3", "-o", str(gemma)])
    theirs = {"source": "llama-cpp", "llama_cpp": "b1", "command": "zinc-rt golden make --wrong"}
    for meta in (theirs, {**theirs, "model_digest": None}):
        capsys.readouterr()
        assert main(["check", str(tamper_golden(golden_path, meta=meta)), "--model", str(gemma)]) == 1
        output = capsys.readouterr().out
        assert "made for another model: m.gguf (qwen3moe" in output and "gemma.gguf is gemma3, " in output
        assert "next  use its own model, m.gguf (qwen3moe" in output and "golden make" not in output


def test_differing_foreign_golden_is_compared_but_not_remade(golden_path: Path, capsys: Any) -> None:
    theirs = tamper_golden(
        golden_path, meta={"source": "llama-cpp", "llama_cpp": "b1"}, logits=lambda logits: logits + 1
    )
    assert main(["check", str(theirs)]) == 1
    output = capsys.readouterr().out
    assert f"--golden {theirs} --resync" in output and "golden make" not in output


def test_golden_of_older_code_is_noted_where_bits_differ(golden_path: Path, capsys: Any) -> None:
    assert main(["check", str(tamper_golden(golden_path, meta={"code": "0" * 64}))]) == 0
    path = tamper_golden(golden_path, meta={"code": "0" * 64}, logits=change_one_bit(0, 0))
    assert main(["check", str(path)]) == 1
    assert "cause  the arithmetic or the model code has changed since" in capsys.readouterr().out


def test_golden_with_removed_ordering_is_expired(golden_path: Path, capsys: Any) -> None:
    assert main(["check", str(tamper_golden(golden_path, meta={"ordering": "canonical-0"}))]) == 1
    output = capsys.readouterr().out
    assert "made in canonical-0, which this build does not compute" in output
    assert "next  zinc-rt golden make --model" in output


def test_unsupported_format_is_reported_with_its_command(golden_path: Path, capsys: Any) -> None:
    assert main(["check", str(tamper_golden(golden_path, meta={"format": 99}))]) == 2
    assert re.search(
        r"golden format 99; this build reads 1\n.*zinc-rt golden make --model", capsys.readouterr().err
    )


@pytest.mark.rest
def test_embedded_goldens_pass(capsys: Any) -> None:
    assert main(["check"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("PASS  8 goldens: ")


# --- list ------------------------------------------------------------------------------------------------------


def test_list_names_goldens_and_reasons_for_invalid_files(golden_path: Path, capsys: Any) -> None:
    (golden_path.parent / "torn.npz").write_bytes(golden_path.read_bytes()[:100])
    np.savez(golden_path.parent / "foreign.npz", weights=np.ones(3))
    capsys.readouterr()
    assert main(["list", str(golden_path.parent)]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert "qwen3moe" in rows["g"] and "3 + 2" in rows["g"] and "attn_norm-*" in rows["g"]
    assert "not a readable golden" in rows["torn"]
    assert "array logits is missing" in rows["foreign"]
    assert main(["list", str(golden_path.parent), "--json", "-"]) == 0
    listed = {row["path"]: row for row in json.loads(capsys.readouterr().out)["details"]["goldens"]}
    assert listed[str(golden_path)]["model_digest"] == read_golden(golden_path).meta["model_digest"]
    assert listed[str(golden_path)]["size_bytes"] == golden_path.stat().st_size


def test_embedded_goldens_are_listed(capsys: Any) -> None:
    assert main(["list"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in ("qwen3-q", "qwen35moe-q", "gemma4-q", "gemma4moe-q", "8 goldens in "))


def test_empty_list_fails_the_command(tmp_path: Path) -> None:
    assert main(["list", str(tmp_path)]) == 77
    assert main(["list", str(tmp_path / "nowhere")]) == 2


# --- import ----------------------------------------------------------------------------------------------------


def write_dump(golden: Path, dtype: Any = np.float32, **change: Any) -> Path:
    """What another engine might have saved."""
    result = read_golden(golden)
    assert result.l_out is not None
    arrays: dict[str, Any] = {
        "tokens": result.ids.astype(np.int64),
        "logits": result.logits.astype(dtype),
        "hidden_0": result.l_out[0].astype(dtype),
        "l_out-1": result.l_out[1].astype(dtype),
        "attn_norm-0": result.nodes["attn_norm-0"].astype(dtype),
        "ffn_moe_topk-0": result.experts[0].astype(np.int64),
    }
    arrays |= change
    path = golden.with_name("dump.npz")
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})  # type: ignore[arg-type]
    return path


def import_dump(dump: Path, *more: str) -> int:
    names = ["--map", "tokens=ids", "--map", "hidden_0=l_out-0"]
    line = ["import", "--from", "npz", str(dump), "--model", str(dump.with_name("m.gguf")), "--force", *more]
    return main([*line, *(names if not more else ()), "-o", str(dump.with_name("theirs.npz"))])


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dump_becomes_a_golden_that_validates(dtype: Any, golden_path: Path, capsys: Any) -> None:
    from zinc_rt.validate.command import main as validate

    assert import_dump(write_dump(golden_path, dtype)) == 0
    theirs = golden_path.with_name("theirs.npz")
    result = read_golden(theirs)
    assert result.source == "a dump"
    assert result.l_out is not None and result.l_out.shape == (2, 3, 64)
    assert (result.meta["dump"], result.meta["names"]["hidden_0"]) == ("dump.npz", "l_out-0")
    assert main(["check", str(theirs)]) == 0
    capsys.readouterr()
    line = ["--model", str(golden_path.with_name("m.gguf")), "--golden", str(theirs), "--nodes", "attn_norm-*"]
    assert validate([*line, "--no-cache", "-v"]) == 0
    assert re.search(r"attn_norm-0 .*pass", capsys.readouterr().out)


def test_bfloat16_saved_by_ml_dtypes_is_accepted(golden_path: Path) -> None:
    logits = read_golden(golden_path).logits
    bfloat16 = (logits.view(np.uint32) >> 16).astype(np.uint16).view("V2")
    assert import_dump(write_dump(golden_path, logits=bfloat16)) == 0
    assert np.abs(read_golden(golden_path.with_name("theirs.npz")).logits - logits).max() < 0.1


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": None}, "array logits is missing; the file contains"),
        ({"logits": np.ones((3, 511))}, r"logits has shape \[3, 511\], expected \[3, 512\]"),
        ({"logits": np.full((3, 512), np.nan)}, r"logits\[0, 0\] contains NaN"),
        ({"logits": np.ones((3, 512), np.int32)}, "logits is int32, expected floats"),
        ({"tokens": np.array([1.0, 2.0, 3.0])}, "ids is float64, expected integers"),
        ({"tokens": np.array([1, 2, 512])}, "ids ranges from 1 to 512, but the vocabulary has 512"),
        ({"l_out-1": None}, r"l_out has shape \[1, 3, 64\], expected \[2, 3, 64\]"),
        ({"l_out-1": np.ones((3, 32))}, "l_out-N of shapes"),
        ({"l_out-1": None, "l_out-2": np.ones((3, 64))}, "no l_out-1; every layer is required"),
        ({"l_out": np.ones((2, 3, 64))}, "give either l_out or l_out-0"),
        ({"attn_norm-0": np.ones((4, 64))}, r"attn_norm-0 has shape \[4, 64\], expected \[3, 64\]"),
        ({"weights": np.ones(3)}, "unknown array weights"),
        ({"ids": np.ones(3, int)}, "two arrays would have the name ids"),
        ({"tokens": None}, "there is no array named tokens"),
    ],
)
def test_mismatched_dump_is_rejected(change: dict[str, Any], message: str, golden_path: Path, capsys: Any) -> None:
    assert import_dump(write_dump(golden_path, **change)) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not golden_path.with_name("theirs.npz").exists()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("pair", ["tokens", "=ids", "tokens="])
def test_malformed_name_pair_is_explained(pair: str, golden_path: Path, capsys: Any) -> None:
    assert import_dump(write_dump(golden_path), "--map", pair) == 2
    assert "expected their_name=our_name" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is not None, reason="llama-cpp-python is installed")
def test_missing_llama_cpp_error_names_the_extra(model_path: Path, capsys: Any) -> None:
    line = ["import", "--from", "llama-cpp", "--model", str(model_path), "--tokens", "1,2"]
    assert main([*line, "-o", str(model_path.with_name("g.npz"))]) == 2
    assert "pip install zinc-rt[llama-cpp]" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed")
@pytest.mark.parametrize("architecture", ["qwen3", "gemma3", "gemma4moe"])
@pytest.mark.parametrize("quant", ["f32", "q"])
def test_llama_cpp_golden_passes_check(architecture: str, quant: str, tmp_path: Path, capsys: Any) -> None:
    model, out = str(tmp_path / "m.gguf"), str(tmp_path / "g.npz")
    assert main(["make", "--tiny", architecture, "--quant", quant, "--hidden", "128", "-o", model]) == 0
    line = ["import", "--from", "llama-cpp", "--model", model, "--tokens", "5,17,300,2,9,9,88,41,5,6,7,8"]
    assert main([*line, "-o", out, *(["--dequantised"] if quant == "q" else [])]) == 0
    assert main(["check", out]) == 0, capsys.readouterr().out
    if quant == "q":
        assert main([*line, "-o", out, "--force"]) == 0
        assert "only a golden with --dequantised compares tightly" in capsys.readouterr().out
        assert main(["check", out]) == 1
        assert "cause  llama.cpp re-quantises activations" in capsys.readouterr().out


# --- the same mistakes everywhere ------------------------------------------------------------------------------


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("make --model {model} --tokens 1", "no output was named"),
        ("make --model {model} --tokens 1 -o {model}", "the file already exists"),
        ("make --model {model} --tokens 1 -o {folder}/no/g.npz", "the folder"),
        ("make --model {model} --tokens 512 -o {folder}/g.npz", "512"),
        ("make --model {model} -o {folder}/g.npz", "no prompt was given"),
        ("make --model {model} --tokens 1,2 --ctx 4 --steps 3 -o {folder}/g.npz", "exceed a context of 4"),
        ("make --model {model} --tokens 1 --seed 3 -o {folder}/g.npz", "--seed goes with --tiny"),
        ("make --model {folder}/none.gguf --tokens 1 -o {folder}/g.npz", "no such file"),
        ("make --tiny qwen9 -o {folder}/t.gguf", "unknown tiny model 'qwen9'"),
        ("make --tiny qwen3 --quant q9 -o {folder}/t.gguf", "unknown type 'q9'"),
        ("make --tiny qwen3 --seed -1 -o {folder}/t.gguf", "--seed -1"),
        ("make --tiny qwen3 --tokens 1 -o {folder}/t.gguf", "--tokens goes with --model"),
        ("make --tiny all -o {model}", "not a folder"),
        ("check {folder}/none.npz", "no such file"),
        ("check --model {model}", "--model needs a golden"),
        ("import --from npz --model {model} -o {folder}/g.npz", "no dump was named"),
        ("import --from npz {model} --model {model} -o {folder}/g.npz", "not a readable golden"),
        (
            "import --from npz d.npz --model {model} --steps 3 -o {folder}/g.npz",
            "--steps goes with --from",
        ),
        ("import --from llama-cpp d.npz --model {model} -o {folder}/g.npz", "a dump needs --from npz"),
    ],
)
def test_failed_command_prints_one_line_and_leaves_no_files(
    line: str, message: str, model_path: Path, capsys: Any
) -> None:
    words = [word.format(model=model_path, folder=model_path.parent) for word in line.split()]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("zinc-rt golden: ") and message in error
    assert [path.name for path in model_path.parent.iterdir()] == ["m.gguf"]


def test_golden_without_adjacent_model_requires_model_option(golden_path: Path, capsys: Any) -> None:
    golden_path.with_name("m.gguf").rename(golden_path.with_name("elsewhere.gguf"))
    assert main(["check", str(golden_path)]) == 2
    assert re.search(r"the model m.gguf is not in the same folder\n  next: --model", capsys.readouterr().err)
    assert main(["check", str(golden_path), "--model", str(golden_path.with_name("elsewhere.gguf"))]) == 0


def test_help_shows_examples_and_imports_no_numpy(tmp_path: Path) -> None:
    for command in ([], ["make"], ["check"], ["import"]):
        line = [sys.executable, "-X", "importtime", "-m", "zinc_rt.validate.goldens.command", *command, "--help"]
        result = subprocess.run(line, capture_output=True, text=True, check=True)
        assert "examples:" in result.stdout
        assert "numpy" not in result.stderr, f"{command} imports NumPy to print help"


def test_documented_dump_works_as_written(golden_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/golden.md, run against an engine that is ours."""
    python = re.search(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert python is not None
    result = read_golden(golden_path)
    assert result.l_out is not None
    layers = result.l_out
    text = textwrap.dedent(python[1])
    ids = result.ids.tolist()
    text = re.sub(r"ids = \[.*\]", f"ids = {ids}", text)
    monkeypatch.chdir(golden_path.parent)
    exec(compile(text, "docs/golden.md", "exec"), {"my_engine": lambda ids: (result.logits, list(layers))})
    line = ["import", "--from", "npz", "dump.npz", "--model", "m.gguf", "--source", "my engine 1.2"]
    names = ["--map", "hidden_0=l_out-0", "--map", "hidden_1=l_out-1"]
    assert main([*line, *names, "-o", "theirs.npz"]) == 0
    theirs = read_golden("theirs.npz")
    assert theirs.source == "my engine 1.2"
    assert theirs.l_out is not None
    assert np.abs(theirs.l_out - layers).max() <= 2**-11 * np.abs(layers).max()
