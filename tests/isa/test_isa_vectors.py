"""The decoder against LLVM's text for the encodings of LLVM's own gfx11 and gfx12 tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from zinc_rt.isa import decode, target_of

W32 = target_of("gfx1201")
SHOWN = 5


def read_vectors(data_dir: Path, name: str, folder: str = "gfx12") -> list[list[str]]:
    file = data_dir / folder / name
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


@pytest.mark.parametrize(("chip", "count"), [("gfx1100", 18535), ("gfx1151", 18970)])
def test_every_gfx11_vector_disassembles_as_in_llvm(data_dir: Path, chip: str, count: int) -> None:
    """LLVM 19 wrote these texts. Later versions name the FFT mode of ds_swizzle_b32, as the decoder does."""
    target = target_of(chip, true16="fake")
    vectors = read_vectors(data_dir, f"{chip}_w32.tsv", "gfx11")
    wrong = []
    for raw, want in vectors:
        text = decode(bytes.fromhex(raw), 0, target)
        saw = None if text is None else text.text.replace("offset:swizzle(FFT,31)", "offset:65535")
        if text is None or saw != want or text.size_bytes != len(raw) // 2:
            wrong.append(f"{raw}: expected {want!r}, saw {saw!r}")
    assert len(vectors) == count
    assert not wrong, "\n".join(wrong[:SHOWN])


@pytest.mark.parametrize("chip", ["gfx1100", "gfx1151"])
def test_gfx11_instructions_rejected_by_llvm_are_not_decoded(data_dir: Path, chip: str) -> None:
    result = read_vectors(data_dir, f"{chip}_w32_invalid.tsv", "gfx11")
    target = target_of(chip, true16="fake")
    assert result and not [raw for (raw,) in result if decode(bytes.fromhex(raw), 0, target) is not None]


@pytest.mark.parametrize(
    ("raw", "gfx11", "gfx12"),
    [
        ("0d4330f02004180001020000", "image_atomic_add v[4:5], [v32, v1, v2], s[96:103] "
         "dmask:0x3 dim:SQ_RSRC_IMG_CUBE glc", None),
        ("01001fce", "lds_direct_load v1 wait_vdst:15",
         "ds_direct_load v1 wait_va_vdst:15 wait_vm_vsrc:0"),
        ("0f0200f804030201", "exp invalid_target_32 v4, v3, v2, v1", "export invalid_target_32 v4, v3, v2, v1"),
        ("0700b4e000000203", "buffer_load_lds_u8 off, s[8:11], s3 offset:7", None),
    ],
)  # fmt: skip
def test_graphics_encodings_differ_by_generation(raw: str, gfx11: str, gfx12: str | None) -> None:
    for chip, want in (("gfx1100", gfx11), ("gfx1151", gfx11), ("gfx1201", gfx12)):
        instruction = decode(bytes.fromhex(raw), 0, target_of(chip))
        assert (None if instruction is None else instruction.text) == want, chip


def test_singleuse_exists_on_gfx11_5_only() -> None:
    code = bytes.fromhex("000093bf")
    assert decode(code, 0, target_of("gfx1151")) is not None
    assert decode(code, 0, target_of("gfx1100")) is None
