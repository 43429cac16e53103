"""The decoder, the disassembler and the linter on anything at all: no traceback, no endless loop."""

from __future__ import annotations

import random

import pytest

from zinc_rt.pm4 import BadPacket, Generation, decode, decode_stream
from zinc_rt.pm4.disassemble import disassemble
from zinc_rt.pm4.lint import lint
from zinc_rt.pm4.packets import PACKETS, EventWrite, Nop, ReleaseMem, SetShReg

G12 = Generation.GFX12


def random_words(seed: int, count: int) -> list[int]:
    """Random dwords, headers with plausible counts, and whole packets with single bits flipped."""
    source = random.Random(seed)
    words: list[int] = []
    while len(words) < count:
        kind = source.randrange(4)
        if kind == 0:
            words += [source.getrandbits(32) for _ in range(source.randrange(1, 8))]
        elif kind == 1:
            words.append(0xC0000000 | source.randrange(12) << 16 | source.randrange(256) << 8)
        else:
            cls = source.choice(PACKETS)
            size = cls.DWORDS[-1] + (source.randrange(3) * cls.GROUP)
            packet = [source.getrandbits(32) for _ in range(size)]
            packet[0] = 0xC0000000 | max(size - 2, 0) << 16 | cls.OP << 8
            if kind == 3:
                packet[source.randrange(size)] ^= 1 << source.randrange(32)
            words += packet
    return words[:count]


@pytest.mark.parametrize("generation", list(Generation))
def test_million_random_and_mutated_dwords_decode(slow_counts, generation: Generation) -> None:
    whole, seen, bads = slow_counts(20_000, 500_000), 0, 0
    piece = 1000
    for seed in range(whole // piece):
        words = random_words(seed, piece)
        queue = ("kfd", "userq")[seed & 1]
        items = decode_stream(words, generation, keep_going=True)
        assert sum(item.length for item in items) == piece and all(item.length > 0 for item in items)
        for item in items:
            bads += isinstance(item.packet, BadPacket)
            if not isinstance(item.packet, BadPacket):
                assert item.packet.words(generation) == words[item.offset : item.offset + item.length]
            lint(words[item.offset : item.offset + item.length], generation, queue=queue, is_ib=bool(seed & 2))
        lint(words, generation, queue=queue)
        assert disassemble(words, generation).count("\n") < piece
        seen += piece
    assert seen == whole and bads > 0


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("generation", list(Generation))
def test_every_header_decodes_to_a_packet_or_an_error(generation: Generation) -> None:
    body = [0xFFFFFFFF] * 16
    for opcode in range(256):
        for count in (0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 0x3FFE, 0x3FFF):
            header = 0xC0000000 | count << 16 | opcode << 8
            for words in ([header], [header, *body]):
                packet, length = decode(words, 0, generation)
                assert 1 <= length <= len(words)
                disassemble(words, generation)
                lint(words, generation)
                if isinstance(packet, BadPacket):
                    assert packet.words == tuple(words[:length]) and packet.text


def test_empty_stream_decodes_to_nothing() -> None:
    assert decode_stream([], G12) == [] and lint([], G12) == [] and disassemble([], G12) == ""


def test_decoding_stops_at_first_bad_packet_by_default() -> None:
    words = [0xFFFF1000, 0xC001F200, 1, 2, 0xC0004600, 0x407]
    assert [item.offset for item in decode_stream(words, G12)] == [0, 1]
    items = decode_stream(words, G12, keep_going=True)
    assert [(item.offset, item.length, item.reached) for item in items] == [
        (0, 1, True),
        (1, 3, True),
        (4, 2, False),
    ]
    assert items[2].packet == EventWrite(7, 4)


def test_truncated_packet_reports_missing_dwords() -> None:
    packet, length = decode([0xFFFF1000, 0xC0031500, 1], 1, G12)
    assert (
        packet == BadPacket("truncated", "DISPATCH_DIRECT of 5 dwords with 2 left", (0xC0031500, 1))
        and length == 2
    )


def test_stream_may_be_a_memoryview() -> None:
    import array

    words = memoryview(array.array("I", SetShReg(0x240, (1, 2)).words(G12)))
    assert decode(words, 0, G12) == (SetShReg(0x240, (1, 2)), 4)
    assert decode(memoryview(array.array("I", [0xC0001000, 7])), 0, G12) == (Nop((7,)), 2)


def test_stream_may_be_a_numpy_array_and_vas_do_not_wrap() -> None:
    import numpy as np

    release = ReleaseMem(0x7F1234567800, 1 << 40)
    words = np.array([0xFFFF1000, *release.words(G12), 0xC0031500], np.uint32)
    assert decode(words, 1, G12) == (release, 8)
    assert decode(words, 0, G12) == (Nop(), 1)
    assert [item.packet for item in decode_stream(words, G12)][:2] == [Nop(), release]
    assert decode(words, 9, G12)[0] == BadPacket(
        "truncated", "DISPATCH_DIRECT of 5 dwords with 1 left", (0xC0031500,)
    )
    assert [finding.rule for finding in lint(words, G12)] == ["truncated"]
    assert "0x7f1234567800" in disassemble(words, G12)
