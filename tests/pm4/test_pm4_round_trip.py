"""Every packet, both generations: packet -> dwords -> packet, and dwords -> packet -> dwords."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.pm4 import BadPacket, EncodeError, Generation, Packet, decode
from zinc_rt.pm4.packets import PACKETS, Nop

DWORDS = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 0x80000000, 0xFFFFFFFF]))
CASES = [(cls, generation) for cls in PACKETS for generation in cls.ON]
IDS = [f"{cls.__name__}-{generation.name.lower()}" for cls, generation in CASES]


def field_values(field: Any, generation: Generation) -> st.SearchStrategy[Any]:
    location = field.place
    if location.payload:
        pairs = st.tuples(DWORDS, DWORDS)
        kinds: dict[str, Any] = {
            "values": st.lists(DWORDS, min_size=1, max_size=8),
            "pairs": st.lists(pairs, min_size=1, max_size=6),
            "packed": st.lists(st.tuples(st.integers(0, 0xFFFF), DWORDS), min_size=1, max_size=3).map(
                lambda w: w * 2
            ),
            "fences": st.lists(
                st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=1, max_size=4
            ),
        }
        return kinds[location.payload].map(tuple)
    if generation not in location.on:
        return st.just(0)
    top = (1 << sum(span.width for span in location.spans)) - 1
    values = st.one_of(st.integers(0, top), st.sampled_from([0, top]))
    return st.one_of(st.none(), values) if location.optional else values


@st.composite
def draw_packets(draw: st.DrawFn, cls: type[Packet], generation: Generation) -> Packet:
    return cls(**{field.name: draw(field_values(field, generation)) for field in cls.FIELDS})


@pytest.mark.parametrize(("cls", "generation"), CASES, ids=IDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.rest(keep=3)
@pytest.mark.slow(keep=30)
def test_encoded_packet_decodes_to_itself(cls: type[Packet], generation: Generation, data: Any) -> None:
    packet = data.draw(draw_packets(cls, generation))
    words = packet.words(generation)
    assert all(0 <= word < 2**32 for word in words)
    assert decode([0xDEAD, *words, 0xBEEF], 1, generation) == (packet, len(words))


@pytest.mark.parametrize(("cls", "generation"), CASES, ids=IDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.rest(keep=2)
@pytest.mark.slow(keep=30)
def test_decoded_packet_reencodes_to_same_dwords_including_reserved_bits(
    cls: type[Packet], generation: Generation, data: Any
) -> None:
    length = data.draw(st.sampled_from([*cls.DWORDS, *([cls.DWORDS[-1] + 2 * cls.GROUP] if cls.GROUP else [])]))
    count = 0x3FFF if cls is Nop and length == 1 else length - 2
    header = 0xC0000000 | count << 16 | cls.OP << 8 | data.draw(st.integers(0, 255))
    words = [header, *data.draw(st.lists(DWORDS, min_size=length - 1, max_size=length - 1))]
    packet, taken = decode(words, 0, generation)
    assert type(packet) is cls and taken == length
    assert packet.words(generation) == words


@pytest.mark.parametrize("cls", PACKETS, ids=lambda cls: cls.__name__)
def test_packet_of_another_generation_cannot_be_encoded_or_decoded(cls: type[Packet]) -> None:
    for generation in set(Generation) - set(cls.ON):
        packet = cls(**{field.name: smallest_value(field) for field in cls.FIELDS})
        with pytest.raises(EncodeError, match="not a compute packet"):
            packet.words(generation)
        words = packet.words(cls.ON[0])
        bad, length = decode(words, 0, generation)
        assert isinstance(bad, BadPacket) and bad.why == "generation" and length == len(words)


def smallest_value(field: Any) -> Any:
    smallest = {"values": (0,), "pairs": ((0, 0),), "packed": ((0, 0), (0, 0)), "fences": ((0, 0),)}
    return smallest.get(field.place.payload, 0)


@pytest.mark.parametrize(("cls", "generation"), CASES, ids=IDS)
def test_out_of_range_field_is_rejected_by_name(cls: type[Packet], generation: Generation) -> None:
    whole = {field.name: smallest_value(field) for field in cls.FIELDS}
    for field in cls.FIELDS:
        if field.place.payload:
            continue
        width = sum(span.width for span in field.place.spans) if generation in field.place.on else 0
        for wrong in (1 << width, -1):
            with pytest.raises(EncodeError, match=field.name):
                cls(**{**whole, field.name: wrong}).words(generation)


@pytest.mark.parametrize(("cls", "generation"), CASES, ids=IDS)
def test_invalid_payload_size_is_rejected(cls: type[Packet], generation: Generation) -> None:
    whole = {field.name: smallest_value(field) for field in cls.FIELDS}
    for field in cls.FIELDS:
        if not field.place.payload:
            continue
        one = whole[field.name][0]
        wide = (1 << 64, 0) if isinstance(one, tuple) else 1 << 32
        negative = (0, -1) if isinstance(one, tuple) else -1
        wrong = [(wide,) * 2, (negative,) * 2, (one,) * 0x4002]
        if cls is not Nop:
            wrong.append(())
        for values in wrong:
            with pytest.raises(EncodeError):
                cls(**{**whole, field.name: values}).words(generation)


def test_largest_packet_has_count_of_all_ones() -> None:
    from zinc_rt.pm4.packets import WriteData

    words = WriteData(0x10000, (0,) * (0x4001 - 4)).words(Generation.GFX12)
    assert len(words) == 0x4001 and words[0] == 0xFFFF3700
    assert decode(words, 0, Generation.GFX12)[1] == 0x4001


def test_packets_are_frozen_and_compare_by_value() -> None:
    from zinc_rt.pm4.packets import EventWrite

    flush = EventWrite.cs_partial_flush()
    with pytest.raises(AttributeError):
        flush.event_type = 3  # type: ignore[misc]
    assert flush == EventWrite(7, 4) and hash(flush) == hash(EventWrite(7, 4)) and flush != EventWrite(7, 0)


def test_reserved_bits_overlapping_a_field_are_rejected() -> None:
    from zinc_rt.pm4.packets import EventWrite

    for wrong in (((1, 1),), ((5, 1),), ((1, 1 << 32),)):
        with pytest.raises(EncodeError, match="reserved"):
            EventWrite(7, 4, reserved=wrong).words(Generation.GFX12)
