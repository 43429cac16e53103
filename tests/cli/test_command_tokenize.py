"""zinc-rt tokenize: bytes in, ids out."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from zinc_rt.cli.tokenize import main
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.tokenizer import Tokenizer

Capture = pytest.CaptureFixture[str]


def tokenize(capsys: Capture, model: str, text: str, *options: str) -> list[int]:
    assert main(["--model", model, "--text", text, "--ids", *options]) == 0
    line = capsys.readouterr().out
    assert line.endswith("\n") and line.count("\n") == 1
    return [int(id) for id in line.split(",")] if line.strip() else []


def test_special_tokens_are_added_by_default_but_parsed_only_on_request(gemma4: str, capsys: Capture) -> None:
    tokenizer = Tokenizer.from_metadata(read_gguf(gemma4).metadata)
    text = "a<eos>b"
    assert tokenizer.bos_id == 2 and tokenizer.eos_id == 1
    default = tokenize(capsys, gemma4, text)
    parsed = tokenize(capsys, gemma4, text, "--parse-special")
    neither = tokenize(capsys, gemma4, text, "--no-special")
    assert default == tokenizer.encode(text, add_special=True, parse_special=False)
    assert default == [2, *neither] and 1 not in neither
    assert parsed[0] == 2 and 1 in parsed


def test_stdin_is_read_byte_exactly(qwen3: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b" \r\n a\n\nb\t\n\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    ids = tokenize(capsys, qwen3, "-")
    assert Tokenizer.from_metadata(read_gguf(qwen3).metadata).decode_bytes(ids) == raw


@pytest.mark.parametrize("raw", [b"abc\xff", b"\xed\xa0\x80", b"\xe4\xb8"])
def test_non_utf8_input_is_rejected(
    raw: bytes, qwen3: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert main(["--model", qwen3, "--text", "-"]) == 2
    assert "stdin is not valid UTF-8: byte 0x" in capsys.readouterr().err


def test_non_utf8_argument_is_rejected(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--text", "ab\udcff"]) == 2
    assert "the text is not valid UTF-8: byte 0xff at 2" in capsys.readouterr().err


def test_empty_text_has_no_ids(qwen3: str, capsys: Capture) -> None:
    assert tokenize(capsys, qwen3, "") == []


def test_table_shows_spaces_and_partial_characters(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--text", "the cat\n世<|im_end|>", "--parse-special"]) == 0
    out = capsys.readouterr().out
    assert "'the'" in out and "' c'" in out and "'\\n'" in out and "'\\xe4'" in out
    assert "'<|im_end|>'  (special)" in out
    assert out.splitlines()[-1].endswith("tokens")


def test_report_has_ids_and_pieces(qwen3: str, capsys: Capture) -> None:
    assert main(["--model", qwen3, "--text", "the cat", "--json", "-"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["command"] == "tokenize" and body["verdict"]["exit"] == 0
    assert "".join(body["details"]["pieces"]) == "the cat" and len(body["details"]["ids"]) == 3


def test_vocabulary_only_file_is_sufficient(qwen3: str, vocabulary_only_model: str, capsys: Capture) -> None:
    assert tokenize(capsys, vocabulary_only_model, "the cat") == tokenize(capsys, qwen3, "the cat")


def test_llama_cpp_vocabularies_load(data_dir: Path, capsys: Capture) -> None:
    for name in ("gpt-2", "llama-spm"):
        path = data_dir / "vocab" / f"ggml-vocab-{name}.gguf"
        texts = path.with_name(path.name + ".inp").read_text().split("\n__ggml_vocab_test__\n")
        wanted = path.with_name(path.name + ".out").read_text().splitlines()
        index = texts.index("Hello World")
        assert tokenize(capsys, str(path), texts[index], "--no-special") == [
            int(id) for id in wanted[index].split()
        ]


def test_missing_tokenizer_is_reported(damaged_model, capsys: Capture) -> None:
    assert main(["--model", damaged_model(b"tokenizer.ggml.model", b"tokenizer.ggml.xxxxx"), "--text", "a"]) == 2
    assert "tokenizer.ggml.model: the tokenizer's kind is missing" in capsys.readouterr().err


def test_special_token_options_are_mutually_exclusive(qwen3: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--model", qwen3, "--text", "a", "--no-special", "--parse-special"])
    assert exit.value.code == 2
