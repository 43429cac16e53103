"""Models for the commands: an embedded golden, and what becomes of it when it is damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from zinc_rt.engine import devices

Damage = Callable[[bytes, bytes], str]


@pytest.fixture(autouse=True)
def hide_amd_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the output about this machine's tiers independent of the machine."""
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)


@pytest.fixture
def damaged_model(qwen3: str, tmp_path: Path) -> Damage:
    """damaged(old, new): the golden with some bytes replaced by as many others."""

    def replace_bytes(old: bytes, new: bytes) -> str:
        data = Path(qwen3).read_bytes()
        assert len(old) == len(new) and old in data
        path = tmp_path / "damaged.gguf"
        path.write_bytes(data.replace(old, new))
        return str(path)

    return replace_bytes


@pytest.fixture
def vocabulary_only_model(qwen3: str, tmp_path: Path) -> str:
    """The golden's metadata without its tensors."""
    data = Path(qwen3).read_bytes()
    name = b"token_embd.weight"
    end = data.index(struct.pack("<Q", len(name)) + name)
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(data[:8] + struct.pack("<Q", 0) + data[16:end])
    return str(path)
