"""What other people's clients need: a check each, and the tokenizer in files of Hugging Face that cut as we do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import tokenizers

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ci"))

import clients  # noqa: E402
from hugging_face_files import write_files  # noqa: E402

GGUF = ROOT / "golden" / "qwen3-q.gguf"


def test_every_client_has_a_check_and_every_check_has_a_client() -> None:
    checks = {path.name for path in clients.CHECKS.glob("check_*.py")} - {"check_kit.py"}
    assert checks == {client.check for client in clients.CLIENTS.values()}


def test_hugging_face_files_tokenize_like_ours(tmp_path: Path) -> None:
    write_files(GGUF, tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_metadata(read_gguf(GGUF).metadata)
    for text in ("a  b\n\nc", "it's 2026 — 你好", "<|im_start|>user\nHello<|im_end|>\n"):
        ids = ours.encode(text, add_special=False, parse_special=True)
        assert theirs.encode(text, add_special_tokens=False).ids == ids
        assert theirs.decode(ids, skip_special_tokens=False) == text
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["eos_token"] and config["chat_template"]


def test_tokenizer_not_expressible_in_hugging_face_files_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text, **options: [1])
    with pytest.raises(UnsupportedError, match="to Hugging Face's files"):
        write_files(GGUF, tmp_path)
