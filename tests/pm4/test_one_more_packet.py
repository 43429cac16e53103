"""The one file that docs/extending.md shows for a new packet: it is encoded, decoded, shown and checked."""

from __future__ import annotations

import importlib
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zinc_rt.pm4 import BadPacket, EncodeError, Generation, decode, packets
from zinc_rt.pm4.disassemble import disassemble
from zinc_rt.pm4.lint import lint
from zinc_rt.pm4.packet import BY_OPCODE, Access, Packet

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
G11, G12 = Generation.GFX11, Generation.GFX12


@pytest.fixture
def extra_packet(tmp_path: Path) -> Iterator[type[Packet]]:
    """The class from the page's diff, in a temporary package."""
    (diff,) = re.findall(
        r"```diff\n(--- /dev/null\n\+\+\+ b/zinc_rt/pm4/packets/.*?)```", PAGE.read_text(), re.DOTALL
    )
    names = re.findall(r"^\+\+\+ b/zinc_rt/pm4/packets/(\w+)\.py$", diff, re.MULTILINE)
    assert names == ["counting.py"[:-3]], "a packet is one file"
    lines = [line[1:] for line in diff.splitlines()[3:]]
    (tmp_path / "counting.py").write_text("\n".join(lines) + "\n")
    packets.__path__.append(str(tmp_path))
    try:
        yield importlib.import_module("zinc_rt.pm4.packets.counting").CountUp
    finally:
        packets.__path__.remove(str(tmp_path))
        sys.modules.pop("zinc_rt.pm4.packets.counting", None)
        BY_OPCODE.pop(0xF3, None)


def test_new_packet_is_encoded_and_decoded(extra_packet: type[Packet]) -> None:
    result = extra_packet(0x7F0000001000, 3, saturate=1)  # type: ignore[call-arg]
    words = result.words(G12)
    assert words == [0xC0020000 | 0xF3 << 8, 0x1000, 0x7F00, 1 << 31 | 3]
    assert decode(words, 0, G12) == (result, 4)
    assert extra_packet.NAME == "COUNT_UP" and extra_packet.sizes() == "4"
    with pytest.raises(EncodeError, match=r"COUNT_UP\.step"):
        extra_packet(0x1000, 1 << 16).words(G12)  # type: ignore[call-arg]
    (bad, _) = decode(words, 0, G11)
    assert isinstance(bad, BadPacket) and bad.why == "generation"


def test_arbitrary_dwords_round_trip(extra_packet: type[Packet]) -> None:
    draw = random.Random(7)
    for _ in range(200):
        words = [0xC0020000 | 0xF3 << 8 | draw.getrandbits(8), *(draw.getrandbits(32) for _ in range(3))]
        read, length = decode(words, 0, G12)
        assert length == 4 and isinstance(read, extra_packet) and read.words(G12) == words


def test_new_packet_is_disassembled_and_linted(extra_packet: type[Packet]) -> None:
    result = extra_packet(0x7F0000001004, 0)  # type: ignore[call-arg]
    assert list(result.accesses()) == [Access(0x7F0000001004, 8, "write", 8, 1)]
    text = disassemble(result.words(G12), G12)
    assert "COUNT_UP" in text and "address=0x7f0000001004" in text and "step=0" in text
    assert [(finding.rule, finding.offset) for finding in lint(result.words(G12), G12)] == [
        ("alignment", 1),
        ("empty", 3),
    ]
