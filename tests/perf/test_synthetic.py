"""Synthetic models: every shape is whole, its types are llama.cpp's, and a small one runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.tiny_models.parts import Sizes
from zinc_rt.golden.tiny_models.quantize import WRITABLE
from zinc_rt.host.errors import OutputError
from zinc_rt.ir.dtypes import find_block
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model
from zinc_rt.perf import synthetic
from zinc_rt.perf.synthetic import (
    MIXES,
    SCALES,
    SHAPES,
    ModelShape,
    choose_types,
    compute_size,
    main,
    make_random_blocks,
    write_synthetic,
)

SMALL = Sizes(256, 4, 512, 4, 2, 64, 512, 8, 2, 64)
SMALL_ONES = {
    f"{architecture}-{mix}": ModelShape(architecture, replace(SMALL, layers=6), mix, architecture == "gemma4")
    for architecture in ("qwen3", "qwen35moe", "gemma4", "gptoss")
    for mix in MIXES
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.rest
def test_header_only_file_is_a_complete_model_and_takes_no_space(name: str, tmp_path: Path) -> None:
    path = write_synthetic(tmp_path / "model.gguf", SHAPES[name], header_only=True)
    gguf = read_gguf(path)
    model = build_model(gguf, SequenceLimits(ctx=64, slots=1), "decode")
    assert model.graph.nodes
    assert path.stat().st_size > compute_size(SHAPES[name])
    assert path.stat().st_blocks * 512 < 4_000_000


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize("name", SMALL_ONES)
def test_model_has_finite_and_distinct_logits(name: str, tmp_path: Path) -> None:
    path = write_synthetic(tmp_path / "model.gguf", SMALL_ONES[name])
    with Engine(read_gguf(path), CpuBackend("float32-dequant"), ctx=16) as engine:
        logits = engine.forward([1, 2, 3], rows="last")
    assert np.isfinite(logits).all() and 0.1 < logits.std() < 30


def test_same_name_gives_same_bytes_and_finished_file_is_kept(tmp_path: Path) -> None:
    first, second = (write_synthetic(tmp_path / f"{n}.gguf", SMALL_ONES["qwen3-q4_k_m"]) for n in "ab")
    assert first.read_bytes() == second.read_bytes()
    first.write_bytes(b"kept")
    assert write_synthetic(first, SMALL_ONES["qwen3-q4_k_m"]).read_bytes() == b"kept"


@pytest.mark.parametrize("dtype", SCALES)
def test_random_blocks_have_requested_spread(dtype: str) -> None:
    rows = make_random_blocks(np.random.default_rng(1), 256, 512, dtype, 0.05)
    values = dequantise(rows, dtype)
    assert values.std() == pytest.approx(0.05, rel=0.05)
    assert abs(values.mean()) < 0.01


def dequantise(rows: np.ndarray, dtype: str) -> np.ndarray:
    import gguf

    return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[dtype.upper()])


@pytest.mark.rest
def test_every_type_of_a_mix_can_be_written() -> None:
    for name, shape in SHAPES.items():
        _, planned = synthetic.plan_weights(shape)
        chosen = choose_types({item: planned.shape(item) for item in planned.order}, shape.mix)
        for item in planned.order:
            assert (chosen[item] in SCALES) == (item in planned.spreads), (name, item)
            assert chosen[item] in WRITABLE and planned.shape(item)[-1] % find_block(chosen[item])[0] == 0


def test_q4_k_m_matches_llama_cpp_mixture() -> None:
    """A Qwen 3 of 28 layers, tied: half of attn_v and ffn_down in q6_k, and the embedding, which is the output."""
    _, planned = synthetic.plan_weights(SHAPES["qwen3-0.6b-q4_k_m"])
    chosen = choose_types({item: planned.shape(item) for item in planned.order}, "q4_k_m")
    wide = [int(name.split(".")[1]) for name, dtype in chosen.items() if "ffn_down" in name and dtype == "q6_k"]
    assert wide == [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]
    assert chosen["token_embd.weight"] == "q6_k"
    assert Counter(chosen.values()) == {"q4_k": 5 * 28 + 28, "q6_k": 14 + 14 + 1, "f32": 4 * 28 + 1}


def test_matrix_with_unaligned_rows_falls_back_like_llama_cpp() -> None:
    shapes = {"output.weight": (8, 320), "blk.0.ffn_up.weight": (8, 320), "blk.0.ffn_gate.weight": (8, 20)}
    assert list(choose_types(shapes, "q4_k_m").values()) == ["q8_0", "q5_0", "f32"]


def test_full_disk_is_reported_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(OutputError, match="are free"):
        write_synthetic(tmp_path / "m.gguf", SHAPES["qwen3-0.6b-q8_0"])
    assert not list(tmp_path.iterdir())


def test_wrong_name_lists_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpt-5"]) == 2
    assert "qwen35moe-3b-q4_k_m" in capsys.readouterr().err
