"""The slot record: where every field lies, and that a changed bit shows."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from zinc_rt import kernels
from zinc_rt.ir.slot_record import (
    BYTES,
    RECORD,
    SlotFlag,
    check_words,
    find_column,
    free_records,
    seal_records,
    view_dwords,
)

ROOT = Path(kernels.__file__).parent
# From the table of the design: byte offset, bytes, kind of NumPy dtype.
TABLE = {
    "state": (0, 4, "u"), "epoch": (4, 4, "u"), "tenant": (8, 4, "u"), "session": (12, 4, "u"),
    "request": (16, 8, "u"), "model": (24, 4, "u"), "priority": (28, 4, "u"), "position": (32, 4, "i"),
    "prompt_len": (36, 4, "i"), "generated": (40, 4, "i"), "limit": (44, 4, "i"), "last_token": (48, 4, "i"),
    "pages": (52, 8, "i"), "state_row": (60, 4, "i"), "spare_row": (64, 4, "i"), "temperature": (68, 4, "f"),
    "top_k": (72, 4, "f"), "top_p": (76, 4, "f"), "min_p": (80, 4, "f"), "seed": (84, 8, "u"),
    "choice": (92, 4, "u"), "repetition": (96, 4, "f"), "presence": (100, 4, "f"), "frequency": (104, 4, "f"),
    "penalty_row": (108, 4, "i"), "bias_row": (112, 4, "i"), "bias_count": (116, 4, "i"),
    "logprobs": (120, 4, "i"), "stop_count": (124, 4, "i"), "stop_ids": (128, 32, "i"), "cached": (160, 4, "i"),
    "bound_at": (164, 4, "u"), "speculative": (168, 4, "i"), "min_tokens": (172, 4, "i"), "flags": (176, 4, "u"),
    "check": (252, 4, "u"),
}  # fmt: skip


def test_field_offsets_match_the_table():
    laid = {name: (index, dtype.itemsize, dtype.base.kind) for name, (dtype, index, *_) in RECORD.fields.items()}
    assert laid == TABLE
    assert RECORD.itemsize == BYTES == 256


def test_fields_do_not_overlap():
    ends = sorted((index, index + size) for index, size, _ in TABLE.values())
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))


def test_kernel_finds_a_field_by_its_column():
    records = free_records(3)
    records["seed"][1] = 0x0123456789ABCDEF
    records["stop_ids"][2, 7] = 42
    records["temperature"][0] = 0.5
    words = view_dwords(records)
    assert words[1, find_column("seed")] == np.int32(0x89ABCDEF - (1 << 32))  # the low half first
    assert words[1, find_column("seed") + 1] == 0x01234567
    assert words[2, find_column("stop_ids") + 7] == 42
    assert words[0, find_column("temperature")] == 0x3F000000
    assert words.shape == (3, 64)


def test_free_record_has_neutral_settings():
    (record,) = free_records(1)
    assert (record["penalty_row"], record["bias_row"], record["logprobs"]) == (-1, -1, -1)
    assert (record["temperature"], record["top_k"], record["top_p"], record["min_p"]) == (0, 0, 1, 0)
    assert (record["state"], record["flags"], record["repetition"]) == (0, 0, 1)


def test_kernel_field_offsets_match():
    sources = [ROOT / "native/include/slot_record.h", ROOT / "gfx1201/include/slots.inc"]
    for source in sources:
        text = source.read_text(encoding="utf-8")
        fields = re.findall(r"\bSLOT_(?!FLAG_)([A-Z_]+),? *=? *(\d+)", text)
        assert len(fields) >= 13
        for name, dword in fields:
            assert int(dword) == (64 if name == "DWORDS" else find_column(name.lower())), (source.name, name)
        flags = re.findall(r"\bSLOT_FLAG_([A-Z_]+),? *=? *(\d+)", text)
        assert {name: int(value) for name, value in flags} == {"PENALTIES": 2, "BIAS": 4, "BACKPRESSURE": 64}
        assert (SlotFlag.PENALTIES, SlotFlag.BIAS, SlotFlag.BACKPRESSURE) == (2, 4, 64)


def test_vulkan_kernel_field_offsets_match():
    text = (ROOT / "spirv/include/slot.glsl").read_text(encoding="utf-8")
    fields = re.findall(r"layout\(offset = (\d+)\) (\w+) (\w+)(?:\[(\d+)\])?;", text)
    assert len(fields) >= 17
    for index, kind, name, elements in fields:
        at_bytes, size_bytes, letter = TABLE[name]
        words = {"uvec2": 2}.get(kind, 1) * int(elements or 1)
        assert (int(index), 4 * words) == (at_bytes, size_bytes), name
        assert letter == "f" if kind == "float" else letter in "iu", name
    assert f"SLOT_DWORDS = {BYTES // 4}u" in text
    for flag in (SlotFlag.PENALTIES, SlotFlag.BIAS, SlotFlag.BACKPRESSURE):
        assert f"FLAG_{flag.name} = {flag}u" in text


@pytest.mark.parametrize("name", [name for name in TABLE if name != "check"])
def test_changed_bit_breaks_the_check_word(name):
    records = free_records(2)
    records["flags"] = SlotFlag.PENALTIES
    seal_records(records)
    assert (check_words(records) == records["check"]).all()
    view_dwords(records)[1, find_column(name)] ^= 1 << 9
    assert (check_words(records) == records["check"]).tolist() == [True, False]
