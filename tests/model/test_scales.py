"""NaN and infinity in a model file are found, named by tensor and block, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from zinc_rt.cli.inspect import main
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.ir.dtypes import find_block
from zinc_rt.model.builder import WEIGHT_DTYPES
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.scales import SCALES, find_nonfinite, has_scales

QWEN3 = FOLDER / "qwen3-q.gguf"
PATTERNS = {"nan": 0x7E00, "inf": 0x7C00, "-inf": 0xFC00}


def blocks_of(dtype: str, count: int) -> np.ndarray:
    """Any quants, scales of one."""
    raw = np.random.default_rng(7).integers(0, 256, (count, find_block(dtype)[1]), np.uint8)
    for index in SCALES[dtype]:
        raw[:, index : index + 2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    return raw


def corrupt_scale(tmp_path: Path, tensor: str, block: int, pattern: int) -> Path:
    """Write a copy of a model in which one block's first scale is changed."""
    path = tmp_path / "spoilt.gguf"
    path.write_bytes(QWEN3.read_bytes())
    result = read_gguf(QWEN3).tensors[tensor]
    start = QWEN3.read_bytes().find(result.data.tobytes())
    with path.open("r+b") as file:
        file.seek(start + block * find_block(result.dtype)[1] + SCALES[result.dtype][0])
        file.write(pattern.to_bytes(2, "little"))
    return path


@pytest.mark.parametrize("dtype", SCALES)
def test_scale_offset_matches_gguf(dtype: str) -> None:
    kind = gguf.GGMLQuantizationType[dtype.upper()]
    raw = blocks_of(dtype, 5)
    assert np.isfinite(gguf.quants.dequantize(raw, kind)).all() and find_nonfinite("w", dtype, raw) is None
    for index in SCALES[dtype]:
        bad = raw.copy()
        bad[3, index : index + 2] = np.frombuffer(np.uint16(PATTERNS["inf"]).tobytes(), np.uint8)
        with np.errstate(invalid="ignore"):
            assert not np.isfinite(gguf.quants.dequantize(bad, kind)).all()
        result = find_nonfinite("w", dtype, bad)
        assert result is not None and (result.block, result.value, result.count) == (3, "inf", 1)


def test_every_weight_type_but_iq1_m_is_supported() -> None:
    assert {dtype for dtype in WEIGHT_DTYPES if not has_scales(dtype)} == {
        "iq1_m"
    }  # its scale is spread over four words


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("f32", np.array([[1, 2], [np.nan, np.inf]], np.float32)),
        ("f16", np.array([[1, 2], [np.nan, np.inf]], np.float16)),
        ("bf16", np.array([[0x3F80, 0], [0x7FC0, 0x7F80]], np.uint16)),
        ("mxfp4", np.repeat(np.array([[1], [2], [255], [255]], np.uint8), 17, axis=1)),
    ],
)
def test_elements_and_powers_of_two_are_checked_too(dtype: str, data: np.ndarray) -> None:
    result = find_nonfinite("w", dtype, data)
    assert result is not None and (result.block, result.value, result.count) == (2, "nan", 2)


def test_first_of_many_non_finite_values_is_reported_with_a_count() -> None:
    data = np.zeros((70000, 2), np.float32)
    data[40000, 1] = data[69999, 0] = np.inf
    result = find_nonfinite("w", "f32", data)
    assert result is not None and result.text == "w (f32): element 80001 is inf, and 1 more"


@pytest.mark.parametrize("value", PATTERNS)
def test_inspect_names_tensor_and_block_and_fails(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = corrupt_scale(tmp_path, "blk.1.attn_v.weight", 12, PATTERNS[value])
    assert main(["--model", str(path), "--check"]) == 1
    output = capsys.readouterr().out
    assert f"the scale of block 12 is {value}" in output and "fail  blk.1.attn_v.weight (" in output


def test_intact_file_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", str(QWEN3), "--check"]) == 0
    assert "pass  every float and every scale is finite" in capsys.readouterr().out
