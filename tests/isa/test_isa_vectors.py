"""The decoder against LLVM's text for every encoding of LLVM's own gfx12 tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from zinc_rt.isa import decode, target_of

W32 = target_of("gfx1201")
SHOWN = 5


def read_vectors(data_dir: Path, name: str) -> list[list[str]]:
    file = data_dir / "gfx12" / name
    if not file.is_file():
        pytest.skip(f"{file} is absent")
    return [line.split("\t") for line in file.read_text().splitlines() if not line.startswith("#")]


def test_every_vector_disassembles_as_in_llvm(data_dir: Path) -> None:
    total, right, wrong = Counter[str](), Counter[str](), defaultdict[str, list[str]](list)
    for raw, want in read_vectors(data_dir, "gfx1201_w32.tsv"):
        code = bytes.fromhex(raw)
        text = decode(code, 0, W32)
        encoding = "none" if text is None else text.encoding
        total[encoding] += 1
        if text is not None and text.text == want and text.size_bytes == len(code):
            right[encoding] += 1
        else:
            saw = "INVALID" if text is None else f"{text.text!r}, {text.size_bytes} bytes"
            wrong[encoding].append(f"{raw}: expected {want!r}, saw {saw}")
    assert sum(total.values()) == 27852
    counts = ", ".join(f"{name} {right[name]}/{total[name]}" for name in sorted(total))
    firsts = "\n".join(line for lines in wrong.values() for line in lines[:SHOWN])
    assert not wrong, f"{counts}\n{firsts}"


def test_instructions_rejected_by_llvm_are_not_decoded(data_dir: Path) -> None:
    result = read_vectors(data_dir, "gfx1201_w32_invalid.tsv")
    accepted = {raw: text.text for (raw,) in result if (text := decode(bytes.fromhex(raw), 0, W32)) is not None}
    assert len(result) >= 200 and not accepted


def test_words_and_length_match_the_bytes(data_dir: Path) -> None:
    for raw, _ in read_vectors(data_dir, "gfx1201_w32.tsv")[::7]:
        code = bytes.fromhex(raw)
        text = decode(code, 0, W32)
        assert text is not None
        assert b"".join(word.to_bytes(4, "little") for word in text.words) == code
        assert decode(b"\xff" * 3 + code, 3, W32) == text, "the offset matters not"
        assert decode(code[:-1], 0, W32) is None, "nothing is read beyond the end"
