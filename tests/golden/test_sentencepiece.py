"""The embedded vocabulary of SentencePiece's kind: made by that library, and a tokenizer that differs is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zinc_rt.golden import sentencepiece_vocabulary
from zinc_rt.golden.embedded import VOCABULARY
from zinc_rt.golden.llama_cpp.tokenizer_texts import TEXTS
from zinc_rt.model.tokenizer.spm import SPM
from zinc_rt.validate.command import main
from zinc_rt.validate.diagnosis.digest import diagnose_vocabulary
from zinc_rt.validate.host_checks import check_vocabulary


def test_stored_vectors_match_the_sentencepiece_library(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="pip install sentencepiece")
    model, golden = tmp_path / "sentencepiece.gguf", tmp_path / "sentencepiece.json"
    sentencepiece_vocabulary.write(model, golden)
    assert model.read_bytes() == VOCABULARY.model.read_bytes()
    result, kept = (json.loads(path.read_text(encoding="utf-8")) for path in (golden, VOCABULARY.golden))
    assert result["tokenizer"] == kept["tokenizer"] and kept["source"] == "sentencepiece"


def test_vectors_cover_every_text_and_real_merges() -> None:
    rows = json.loads(VOCABULARY.golden.read_text(encoding="utf-8"))["tokenizer"]
    assert [row["text"] for row in rows] == list(TEXTS)
    english = next(row for row in rows if row["text"].startswith("The quick"))
    assert len(english["plain"]) < len(english["text"]) / 2
    japanese = next(row for row in rows if "\u65e5" in row["text"])
    assert len(japanese["plain"]) > len(japanese["text"])  # bytes


def test_missing_space_prefix_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_vocabulary("").status == "pass"
    encode = SPM.encode
    monkeypatch.setattr(
        SPM, "encode", lambda self, text, *, after_special: encode(self, text, after_special=False)
    )
    result = check_vocabulary("zinc-rt validate")
    assert result.status == "fail" and "'Hello world!', as it is" in result.cause
    lines = list(diagnose_vocabulary(result))
    assert lines[0] == "first bad  sentencepiece, host against sentencepiece.json: node tokenizer"
    assert "suspect the tokenizer" in lines[1] and lines[2].startswith("next       zinc-rt tokenize --model")


def test_missing_vector_file_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "zinc_rt.validate.host_checks.VOCABULARY", type(VOCABULARY)(VOCABULARY.model, tmp_path / "gone.json")
    )
    monkeypatch.setattr("zinc_rt.validate.command._prepare_jobs", lambda arguments, settings: [])
    assert main(["--tiers", "t_cpu"]) == 2
    assert "gone.json" in capsys.readouterr().err
