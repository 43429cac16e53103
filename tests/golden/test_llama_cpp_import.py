"""llama.cpp runs every tiny model, and gives the shared goldens again."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.golden.format import read_golden
from zinc_rt.golden.llama_cpp.importing import import_llama_cpp, write_dequantised
from zinc_rt.golden.tiny_models.architectures import GENERATORS
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import InputError, OutputError, UnsupportedError, UsageError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.validate.command import main as validated

INSTALLED = importlib.util.find_spec("llama_cpp") is not None
needs_llama_cpp = pytest.mark.skipif(not INSTALLED, reason="llama-cpp-python is not installed (extra: llama-cpp)")
PROMPT = list(range(40, 340, 17))


@needs_llama_cpp
@pytest.mark.parametrize("architecture", GENERATORS)
@pytest.mark.parametrize("sizes", [{}, {"quant": "q", "hidden": 256}, {"hidden": 96, "heads": 3, "kv_heads": 1}])
def test_llama_cpp_runs_every_tiny_model(architecture: str, sizes: dict[str, object], tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", architecture, **sizes)  # type: ignore[arg-type]
    arrays = import_llama_cpp(tmp_path / "m.gguf", PROMPT, tmp_path / "m.npz", steps=2, command="make it")
    assert arrays["logits"].shape == (len(PROMPT), 512)
    assert 0.9 < arrays["logits"].std() < 2.5
    saved = np.load(tmp_path / "m.npz")
    assert np.array_equal(saved["logits"], arrays["logits"])
    assert json.loads(str(saved["meta"]))["command"] == "make it"
    assert read_golden(tmp_path / "m.npz").source.startswith("llama.cpp ")


@needs_llama_cpp
@pytest.mark.parametrize("stem", ["llama-f32", "deepseek2-q"])
def test_shared_golden_is_reproduced(stem: str, data_dir: Path, tmp_path: Path) -> None:
    golden = np.load(data_dir / "goldens" / f"{stem}.npz")
    model = data_dir / "goldens" / f"{stem}.gguf"
    arrays = import_llama_cpp(model, golden["ids"].tolist(), tmp_path / "m.npz", dequantised=stem.endswith("-q"))
    assert set(golden.files) - {"meta"} <= set(arrays)
    assert np.array_equal(arrays["greedy_tokens"], golden["greedy_tokens"])
    for name in set(golden.files) - {"meta"}:
        assert np.allclose(arrays[name], golden[name], atol=0.3 if stem.endswith("-q") else 1e-3), name


@needs_llama_cpp
@pytest.mark.parametrize("architecture", ["llama", "qwen35moe", "gemma3"])
def test_every_node_of_selected_rows_is_kept_under_our_names(architecture: str, tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", architecture)
    options = {"steps": 1, "rows": (4, 9)}
    whole = import_llama_cpp(tmp_path / "m.gguf", PROMPT, tmp_path / "m.npz", **options)  # type: ignore[arg-type]
    part = import_llama_cpp(tmp_path / "m.gguf", PROMPT, tmp_path / "p.npz", whole=False, **options)  # type: ignore[arg-type]
    golden, some = read_golden(tmp_path / "m.npz"), read_golden(tmp_path / "p.npz")
    assert golden.rows is not None and golden.rows.tolist() == [4, 9] and len(golden.nodes) > 25
    assert all(len(array) == 2 for label, array in golden.nodes.items() if label != "result_norm")
    assert len(golden.logits) == len(PROMPT) and len(some.logits) == 2
    assert np.array_equal(whole["l_out"][:, [4, 9]], part["l_out"]) and some.l_out is not None
    assert {"llama_cpp_only", "here_only"} == set(golden.meta["nodes_not_compared"])
    assert len(golden.meta["tokenizer"]) == 12 and len(golden.meta["draws"]) > 6
    assert validated(["--model", str(tmp_path / "m.gguf"), "--golden", str(tmp_path / "m.npz")]) == 0
    assert validated(["--model", str(tmp_path / "m.gguf"), "--golden", str(tmp_path / "p.npz")]) == 0


@needs_llama_cpp
@pytest.mark.parametrize(
    ("rows", "prompt", "message"),
    [((1, 1), True, "distinct positions"), ((99,), True, "distinct positions"), ((), False, "nothing would")],
)
def test_rows_outside_the_prompt_are_rejected(
    rows: tuple[int, ...], prompt: bool, message: str, tmp_path: Path
) -> None:
    write_tiny(tmp_path / "m.gguf", "llama")
    with pytest.raises(UsageError, match=message):
        import_llama_cpp(tmp_path / "m.gguf", PROMPT, tmp_path / "m.npz", rows=rows, whole=prompt)


@needs_llama_cpp
def test_prompts_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    write_tiny(tmp_path / "m.gguf", "llama")
    with pytest.raises(UsageError, match="exceed a context of 256"):
        import_llama_cpp(tmp_path / "m.gguf", [1] * 250, tmp_path / "m.npz")
    with pytest.raises(UsageError, match="0 tokens"):
        import_llama_cpp(tmp_path / "m.gguf", [], tmp_path / "m.npz")
    with pytest.raises(InputError, match="token ids range up to 511"):
        import_llama_cpp(tmp_path / "m.gguf", [512], tmp_path / "m.npz")
    with pytest.raises(OutputError, match="cannot write"):
        import_llama_cpp(tmp_path / "m.gguf", [1], tmp_path / "no folder" / "m.npz")


@needs_llama_cpp
def test_llama_cpp_load_error_is_forwarded(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF\3" + bytes(19))
    with pytest.raises(InputError, match=r"general\.architecture"):
        import_llama_cpp(tmp_path / "m.gguf", [1], tmp_path / "m.npz")


@pytest.mark.skipif(INSTALLED, reason="llama-cpp-python is installed")
def test_missing_llama_cpp_error_names_the_extra(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"pip install zinc-rt\[llama-cpp\]"):
        import_llama_cpp(tmp_path / "m.gguf", [1], tmp_path / "m.npz")


def test_dequantised_model_keeps_metadata_and_names(tmp_path: Path) -> None:
    write_tiny(tmp_path / "q.gguf", "gemma4", quant="q", hidden=256)
    write_dequantised(tmp_path / "q.gguf", tmp_path / "f32.gguf")
    before, after = read_gguf(tmp_path / "q.gguf"), read_gguf(tmp_path / "f32.gguf")
    assert {tensor.dtype for tensor in after.tensors.values()} == {"f32"}
    assert {name: t.shape for name, t in before.tensors.items()} == {
        name: t.shape for name, t in after.tensors.items()
    }
    for key, value in before.metadata.items():
        assert np.array_equal(np.asarray(after.metadata[key]), np.asarray(value)), key
