"""GGUF files are read as written, and every malformed one is refused with its place and its reason."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_bytes import RawTensor, gguf_bytes, pack_array_field, pack_string, pack_string_field, pack_u32_field

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.model.gguf import digest_model, read_gguf

F32, Q4_0, Q8_0, BF16 = 0, 2, 8, 30
PLAIN = RawTensor("w", (4, 2), F32, 0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def written_by_the_gguf_package(path: Path) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    tensors = {
        "one": rng.standard_normal(5).astype(np.float32),
        "half": rng.standard_normal((3, 7)).astype(np.float16),
        "cube": rng.standard_normal((2, 3, 4)).astype(np.float32),
        "ints": rng.integers(-9, 9, (2, 2)).astype(np.int32),
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.u32", 7)
    writer.add_int8("a.i8", -3)
    writer.add_uint64("a.u64", 1 << 60)
    writer.add_float32("a.f32", 0.5)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "ĠThe naïve\n")
    writer.add_array("a.texts", ["", "x", "ü"])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_array("a.floats", [1.5, 2.5])
    writer.add_array("a.bools", [True, False])
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    rows = rng.standard_normal((3, 64)).astype(np.float32)
    writer.add_tensor(
        "blocks",
        gguf.quants.quantize(rows, gguf.GGMLQuantizationType.Q8_0),
        raw_dtype=gguf.GGMLQuantizationType.Q8_0,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_file_from_the_gguf_package_round_trips(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = written_by_the_gguf_package(path)
    model = read_gguf(path)
    assert model.architecture == "llama"
    assert model.file_bytes == path.stat().st_size
    metadata = model.metadata
    assert (metadata["a.u32"], metadata["a.i8"], metadata["a.u64"]) == (7, -3, 1 << 60)
    assert metadata["a.f32"] == 0.5
    assert metadata["a.bool"] is True
    assert metadata["a.text"] == "ĠThe naïve\n"
    assert metadata["a.texts"] == ["", "x", "ü"]
    assert np.array_equal(np.asarray(metadata["a.numbers"]), [1, -2, 3])
    assert np.array_equal(np.asarray(metadata["a.floats"]), [1.5, 2.5])
    assert np.array_equal(np.asarray(metadata["a.bools"]), [True, False])
    for name, values in tensors.items():
        assert model.tensors[name].shape == values.shape
        assert np.array_equal(model.tensors[name].data, values)
    blocks = model.tensors["blocks"]
    assert (blocks.dtype, blocks.shape, blocks.data.shape, blocks.nbytes) == ("q8_0", (3, 64), (3, 68), 204)


def test_weights_are_read_only_views_and_survive_the_file_object(tmp_path: Path) -> None:
    weights = read_gguf(write(tmp_path, gguf_bytes([], [PLAIN], b"\1" * 32))).tensors["w"].data
    assert weights.base is not None
    with pytest.raises(ValueError, match="read-only"):
        weights[0, 0] = 1.0
    assert weights.tobytes() == b"\1" * 32


def test_bf16_is_returned_as_raw_bits(tmp_path: Path) -> None:
    content = gguf_bytes([], [RawTensor("w", (3,), BF16, 0)], struct.pack("<3H", 0x3F80, 0, 0xFF80))
    tensor = read_gguf(write(tmp_path, content)).tensors["w"]
    assert (tensor.dtype, tensor.data.dtype, tensor.data.tolist()) == ("bf16", np.uint16, [0x3F80, 0, 0xFF80])


def test_wider_alignment_moves_the_data(tmp_path: Path) -> None:
    content = gguf_bytes([pack_u32_field("general.alignment", 256)], [PLAIN], b"\2" * 32, alignment=256)
    assert read_gguf(write(tmp_path, content)).tensors["w"].data.tobytes() == b"\2" * 32


BROKEN = {
    "not a gguf file": (gguf_bytes(magic=b"GGML"), "starts with b'GGML'"),
    "cut inside the counts": (gguf_bytes()[:12], "truncated: the number of tensors needs bytes 8..16"),
    "too many tensors": (gguf_bytes(tensor_count=1 << 62), "claims 4611686018427387904 tensors"),
    "too many keys": (gguf_bytes(key_count=1 << 62), "claims 4611686018427387904 metadata entries"),
    "a key of 2^63 bytes": (gguf_bytes([b"\xff" * 7 + b"\x7f" + b"k" * 20]), "9223372036854775807 bytes"),
    "a key that is not text": (gguf_bytes([pack_string(b"\xff\xfe") + struct.pack("<II", 4, 1)]), "not UTF-8"),
    "an empty key": (gguf_bytes([pack_u32_field("", 1)]), "metadata key 0 is empty"),
    "a key given twice": (gguf_bytes([pack_u32_field("a", 1), pack_u32_field("a", 2)]), "'a' appears twice"),
    "an unknown value type": (gguf_bytes([pack_string("a") + struct.pack("<II", 13, 1)]), "unknown value type 13"),
    "a bool of 2": (gguf_bytes([pack_string("a") + struct.pack("<IB", 7, 2)]), "holds 2 where a bool is 0 or 1"),
    "an array of 2^60 numbers": (gguf_bytes([pack_array_field("a", 4, 1 << 60, b"1234")]), "numbers in a"),
    "an array of 2^60 strings": (gguf_bytes([pack_array_field("a", 8, 1 << 60, b"1234")]), "strings in a"),
    "a string that leaves the file": (
        gguf_bytes([pack_array_field("a", 8, 2, pack_string("x") + struct.pack("<Q", 999))]),
        "string 1 of 2 in a",
    ),
    "a string in a list that is not text": (
        gguf_bytes([pack_array_field("a", 8, 1, pack_string(b"\xc3"))]),
        "string 0 of a is not UTF-8",
    ),
    "alignment zero": (gguf_bytes([pack_u32_field("general.alignment", 0)]), "general.alignment is 0"),
    "alignment 48": (gguf_bytes([pack_u32_field("general.alignment", 48)]), "general.alignment is 48"),
    "alignment 2 MiB": (
        gguf_bytes([pack_u32_field("general.alignment", 2 << 20)]),
        "general.alignment is 2097152",
    ),
    "alignment as text": (gguf_bytes([pack_string_field("general.alignment", "32")]), "general.alignment is '32'"),
    "no dimensions": (gguf_bytes([], [RawTensor("w", (), F32, 0)], b"1234"), "has 0 dimensions"),
    "five dimensions": (gguf_bytes([], [RawTensor("w", (1,) * 5, F32, 0)], b"1234"), "has 5 dimensions"),
    "a dimension of zero": (gguf_bytes([], [RawTensor("w", (4, 0), F32, 0)]), "invalid size 4 x 0"),
    "a product past 2^63": (gguf_bytes([], [RawTensor("w", (1 << 40, 1 << 40), F32, 0)]), "invalid size"),
    "rows that split a block": (gguf_bytes([], [RawTensor("w", (33, 2), Q4_0, 0)]), "needs a multiple of 32"),
    "a tensor without a name": (gguf_bytes([], [RawTensor("", (1,), F32, 0)], b"1234"), "tensor 0 has no name"),
    "a tensor given twice": (
        gguf_bytes([], [PLAIN, RawTensor("w", (1,), F32, 32)], b"\0" * 64),
        "tensor w appears twice",
    ),
    "an offset between alignments": (
        gguf_bytes([], [RawTensor("w", (1,), F32, 4)], b"\0" * 64),
        "starts at 4, not a multiple of 32",
    ),
    "an offset behind the end": (
        gguf_bytes([], [RawTensor("w", (1,), F32, 1 << 62)], b"\0" * 64),
        "truncated: tensor w",
    ),
    "data cut short": (
        gguf_bytes([], [PLAIN], b"\0" * 31),
        "truncated: tensor w needs bytes 96..128, but the file has 127",
    ),
    "tensors that overlap": (
        gguf_bytes([], [RawTensor("a", (16,), F32, 0), RawTensor("b", (1,), F32, 32)], b"\0" * 64),
        "tensors a and b overlap",
    ),
}


@pytest.mark.parametrize("content,reason", BROKEN.values(), ids=BROKEN.keys())
def test_malformed_file_is_rejected_with_its_offset(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(InputError, match=r"model\.gguf: at byte") as refused:
        read_gguf(write(tmp_path, content))
    assert reason in str(refused.value)
    assert "next: " in str(refused.value)


UNSUPPORTED = {
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "version 1": (gguf_bytes(version=1), "GGUF version is 1; this build reads 2 and 3"),
    "version 4": (gguf_bytes(version=4), "GGUF version is 4"),
    "an array of arrays": (
        gguf_bytes([pack_array_field("a", 9, 1, struct.pack("<IQI", 4, 1, 1))]),
        "array of arrays",
    ),
    "a removed tensor type": (
        gguf_bytes([], [RawTensor("blk.0.w", (32,), 4, 0)], b"\0" * 64),
        "tensor blk.0.w has the unknown ggml type 4",
    ),
    "a future tensor type": (gguf_bytes([], [RawTensor("w", (32,), 999, 0)], b"\0" * 64), "ggml type 999"),
}


@pytest.mark.parametrize("content,reason", UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_unsupported_feature_is_reported(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        read_gguf(write(tmp_path, content))


def test_empty_file_folder_fifo_and_missing_path_are_rejected(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (write(tmp_path, b""), tmp_path, fifo, tmp_path / "missing.gguf", "nul\0byte"):
        with pytest.raises(InputError):
            read_gguf(path)


def test_missing_architecture_is_reported(tmp_path: Path) -> None:
    model = read_gguf(write(tmp_path, gguf_bytes()))
    with pytest.raises(InputError, match=r"general\.architecture is None"):
        _ = model.architecture


def test_digest_covers_every_weight_and_key_but_not_the_padding(tmp_path: Path) -> None:
    def model_digest(content: bytes) -> str:
        return digest_model(read_gguf(write(tmp_path, content)))

    keys = [pack_string_field("general.architecture", "llama"), pack_u32_field("a", 1)]
    usual = model_digest(gguf_bytes(keys, [PLAIN], b"\1" * 32))
    assert len(usual) == 64
    assert usual == model_digest(gguf_bytes(keys[::-1], [PLAIN], b"\1" * 32 + b"junk"))
    assert usual != model_digest(gguf_bytes([keys[0], pack_u32_field("a", 2)], [PLAIN], b"\1" * 32))
    assert usual != model_digest(gguf_bytes(keys, [PLAIN], b"\1" * 31 + b"\2"))
    assert usual != model_digest(gguf_bytes(keys, [RawTensor("v", (4, 2), F32, 0)], b"\1" * 32))
    assert usual != model_digest(gguf_bytes(keys, [RawTensor("w", (2, 4), F32, 0)], b"\1" * 32))


def test_digest_is_cached_and_an_unwritable_cache_is_ignored(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, gguf_bytes([], [PLAIN], b"\1" * 32))
    os.utime(path, (1e9, 1e9))
    model = read_gguf(path)
    first = digest_model(model)
    (entry,) = (own_cache / "zinc-rt" / "digest").iterdir()
    entry.write_text("f" * 64)
    assert digest_model(model) == "f" * 64
    entry.write_text("torn")
    assert digest_model(model) == first
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    assert digest_model(model) == first


def test_digest_of_a_recently_written_file_is_not_cached(tmp_path: Path, own_cache: Path) -> None:
    digest_model(read_gguf(write(tmp_path, gguf_bytes())))
    assert not own_cache.exists()


def test_vocabulary_of_150k_tokens_is_read(tmp_path: Path) -> None:
    tokens = b"".join(pack_string(f"token{index}") for index in range(150_000))
    path = write(tmp_path, gguf_bytes([pack_array_field("tokenizer.ggml.tokens", 8, 150_000, tokens)]))
    model = read_gguf(path)
    assert model.metadata["tokenizer.ggml.tokens"][-1] == "token149999"  # type: ignore[index]


@pytest.mark.rest
def test_every_shared_model_reads_the_same_as_through_the_gguf_package(data_dir: Path) -> None:
    paths = sorted((data_dir / "goldens").glob("*.gguf"))
    assert paths
    for path in paths:
        ours, theirs = read_gguf(path), gguf.GGUFReader(path)
        assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
        for tensor in theirs.tensors:
            mine = ours.tensors[tensor.name]
            assert mine.shape == tuple(int(size) for size in reversed(tensor.shape))
            assert mine.data.tobytes() == tensor.data.tobytes()
        for key, field in theirs.fields.items():
            if not key.startswith("GGUF."):
                value, wanted = ours.metadata[key], field.contents()
                assert np.array_equal(np.asarray(value), np.asarray(wanted)), (path.name, key)
