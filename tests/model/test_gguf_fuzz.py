"""No mutation of a valid file crashes the reader, hangs it, or makes it take memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from support import Counts

from zinc_rt.host.errors import ZincError
from zinc_rt.model.gguf import read_gguf

FUZZ = Path(__file__).with_name("gguf_fuzz.py")


@pytest.fixture(scope="module")
def sample_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Small files with every kind of value and several kinds of tensors."""
    folder = tmp_path_factory.mktemp("samples")
    return [make_sample(folder / f"{tokens}.gguf", tokens) for tokens in (3, 300)]


def make_sample(path: Path, tokens: int) -> Path:
    rng = np.random.default_rng(tokens)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 1)
    writer.add_int16("i16", -1)
    writer.add_uint32("u32", 32)
    writer.add_uint64("u64", 64)
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.25)
    writer.add_bool("bool", False)
    writer.add_string("text", "one two three")
    writer.add_token_list([f"token {index}" for index in range(tokens)])
    writer.add_token_scores([float(index) for index in range(tokens)])
    writer.add_array("bools", [True, False, True])
    writer.add_array("numbers", list(range(tokens)))
    writer.add_tensor("f32", rng.standard_normal((3, 5)).astype(np.float32))
    writer.add_tensor("f16", rng.standard_normal((2, 3, 4)).astype(np.float16))
    for kind in (gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0):
        rows = gguf.quants.quantize(rng.standard_normal((4, 64)).astype(np.float32), kind)
        writer.add_tensor(f"blocks.{kind.name}", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_file_truncated_at_any_byte_is_rejected(sample_files: list[Path], tmp_path: Path) -> None:
    data = sample_files[0].read_bytes()
    cut = tmp_path / "cut.gguf"
    refused = 0
    for size in range(len(data)):
        cut.write_bytes(data[:size])
        try:
            read_gguf(cut)
        except ZincError:
            refused += 1
    padding = len(data) - refused
    assert padding < 32, "only the padding behind the last tensor may be missing"


def test_mutated_files_are_read_or_rejected(sample_files: list[Path], slow_counts: Counts) -> None:
    count = slow_counts(300, 12_000)
    run = subprocess.run(
        [sys.executable, str(FUZZ), str(count), "1", *map(str, sample_files)],
        capture_output=True,
        text=True,
        timeout=60 + count * 0.05,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    outcomes = json.loads(run.stdout)
    assert sum(outcomes.values()) == count
    assert outcomes["InputError"] > count // 4
    assert outcomes["read"] > count // 50
