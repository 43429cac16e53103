"""Whatever the bytes: an answer, never an exception, and streams end."""

from __future__ import annotations

import random

import pytest
from support import Counts

from zinc_rt.isa import Target, decode, decode_stream, target_of

TARGETS = [target_of(f"gfx{generation}-generic", wave) for generation in (11, 12) for wave in (32, 64)]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"gfx{t.generation}-wave{t.wave}")
def test_random_words_never_raise(target: Target, slow_counts: Counts) -> None:
    source = random.Random(target.wave + target.generation)
    seen = 0
    for _ in range(slow_counts(10_000, 1_000_000)):
        code = source.randbytes(16)
        text = decode(code, 0, target)
        if text is not None:
            seen += 1
            assert text.size_bytes in (4, 8, 12, 16) and len(text.words) * 4 == text.size_bytes
            assert text.text and "\n" not in text.text
    assert seen > 1000, "random words hit instructions often"


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"gfx{t.generation}-wave{t.wave}")
def test_streams_cover_every_byte_and_end(target: Target) -> None:
    source = random.Random(7)
    for size_bytes in (0, 1, 2, 3, 4, 5, 11, 64, 1023):
        code = source.randbytes(size_bytes)
        items = list(decode_stream(code, target))
        assert sum(item.size_bytes for item in items) == size_bytes
        assert [item.at for item in items] == [sum(i.size_bytes for i in items[:n]) for n in range(len(items))]


def test_every_leading_halfword_decodes_or_is_rejected() -> None:
    """Each value of the upper half, followed by ones, zeros or literals."""
    for high in range(0, 65536, 7):
        for tail in (b"\0" * 14, b"\xff" * 14, b"\xfa" * 14):
            for target in TARGETS:
                decode(tail[:2] + high.to_bytes(2, "little") + tail, 0, target)
