"""A split model is read from its parts; parts that do not belong together are rejected by name."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import gguf_bytes, pack_u32_field
from model.split_files import split, swap

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.cli.inspect import main as inspect
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.opening import find_model_file
from zinc_rt.host.errors import InputError
from zinc_rt.model.gguf import digest_header, digest_model, part_digest, read_gguf

WHOLE = find_model_file("qwen3-q")
TOKENS = [3, 1, 4, 1, 5]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return split(WHOLE, tmp_path, [0, 4, 7])


def test_every_part_opens_the_whole_model(parts: list[Path]) -> None:
    whole = read_gguf(WHOLE)
    for path in parts:
        gguf = read_gguf(path)
        assert gguf.path == parts[0] and gguf.name == "model"
        assert [part.path for part in gguf.parts] == parts
        assert [len(part.tensors) for part in gguf.parts] == [0, 4, 7, len(whole.tensors) - 11]
        assert gguf.file_bytes == sum(item.stat().st_size for item in parts)
        assert list(gguf.tensors) == list(whole.tensors)
        for name, tensor in whole.tensors.items():
            assert np.array_equal(gguf.tensors[name].data, tensor.data), name
        assert digest_model(gguf) == digest_model(whole)


def test_split_model_gives_the_same_logits(parts: list[Path]) -> None:
    logits = []
    for path in (WHOLE, parts[2]):
        with Engine(read_gguf(path), CpuBackend("canonical-1"), ctx=16) as engine:
            logits.append(engine.forward(TOKENS))
    assert np.array_equal(*logits) and logits[0].any()


def test_digest_of_a_part_is_the_sha256_of_its_file(parts: list[Path]) -> None:
    for part in read_gguf(parts[0]).parts:
        assert part_digest(part) == hashlib.sha256(part.path.read_bytes()).hexdigest()


def test_header_digest_depends_on_the_split_but_not_on_the_mapping(parts: list[Path], tmp_path: Path) -> None:
    first = digest_header(read_gguf(parts[0]))
    assert first == digest_header(read_gguf(parts[0]))
    (tmp_path / "other").mkdir()
    assert first != digest_header(read_gguf(split(WHOLE, tmp_path / "other", [0, 5, 6])[0]))


def test_inspect_lists_the_parts_with_their_digests(parts: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(["--model", str(parts[0]), "--check"]) == 0
    out = capsys.readouterr().out
    assert "parts: 4" in out
    for path in parts:
        assert path.name in out
        assert hashlib.sha256(path.read_bytes()).hexdigest() in out


def test_missing_parts_are_named(parts: list[Path]) -> None:
    parts[1].unlink()
    parts[3].unlink()
    with pytest.raises(InputError, match="2 of 4 parts missing") as refused:
        read_gguf(parts[0])
    assert parts[1].name in str(refused.value) and parts[3].name in str(refused.value)
    assert parts[2].name not in str(refused.value)


@pytest.mark.parametrize("opened", range(4))
def test_swapped_parts_are_named(parts: list[Path], opened: int) -> None:
    swap(parts[1], parts[2])
    with pytest.raises(InputError, match=r"part \d of 4 by its name, part \d by its header") as refused:
        read_gguf(parts[opened])
    assert any(path.name in str(refused.value) for path in parts[1:3])


def test_renamed_part_is_rejected(parts: list[Path]) -> None:
    other = parts[0].rename(parts[0].with_name("mine.gguf"))
    with pytest.raises(InputError, match="part 1 of 4 by its header, which its name does not say"):
        read_gguf(other)


def test_part_of_another_split_is_named(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    shutil.copy(split(WHOLE, tmp_path / "other", [0, 5, 6])[1], parts[1])
    with pytest.raises(InputError, match=r"a part of another model or split: tensor .* is also in") as refused:
        read_gguf(parts[0])
    assert parts[2].name in str(refused.value)


def test_part_of_another_model_is_named(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    shutil.copy(split(find_model_file("gemma4-q"), tmp_path / "other", [0, 4, 7])[2], parts[2])
    with pytest.raises(InputError, match=r"a part of another model or split: split\.tensors\.count is") as refused:
        read_gguf(parts[0])
    assert parts[2].name in str(refused.value)


def test_missing_tensors_are_counted(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    shutil.copy(split(WHOLE, tmp_path / "other", [0, 3, 8])[1], parts[1])
    with pytest.raises(InputError, match=r"the 4 parts have \d+ tensors, split\.tensors\.count is \d+"):
        read_gguf(parts[0])


def test_unsplit_model_in_place_of_a_part_is_named(parts: list[Path]) -> None:
    shutil.copy(WHOLE, parts[3])
    with pytest.raises(InputError, match="a model that is not split, in place of part 4") as refused:
        read_gguf(parts[0])
    assert parts[3].name in str(refused.value)


def test_truncated_part_is_named(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:-64])
    with pytest.raises(InputError, match="truncated") as refused:
        read_gguf(parts[0])
    assert parts[2].name in str(refused.value)


@pytest.mark.parametrize(
    "keys", [[pack_u32_field("split.count", 3)], [pack_u32_field("split.count", 3), pack_u32_field("split.no", 3)]]
)
def test_incomplete_split_keys_are_rejected(tmp_path: Path, keys: list[bytes]) -> None:
    path = tmp_path / "m-00001-of-00003.gguf"
    path.write_bytes(gguf_bytes(keys))
    with pytest.raises(InputError, match=r"split\.no is"):
        read_gguf(path)


def test_joined_model_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "joined.gguf"
    path.write_bytes(gguf_bytes([pack_u32_field("split.count", 0), pack_u32_field("split.no", 0)]))
    assert len(read_gguf(path).parts) == 1
