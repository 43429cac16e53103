"""Text as it may be delivered: the same however it is cut into tokens, and never a part of a stop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.engine.answering import TextOutput
from zinc_rt.model.tokenizer import StreamDecoder

ALPHABET = "ab<é漢"  # one, two and three bytes, and few enough to meet stops
TEXTS = st.text(ALPHABET, max_size=24)
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=4)


def cut_bytes(text: bytes, places: list[int]) -> list[bytes]:
    """Split the bytes at random positions, also inside characters."""
    ends = [*sorted({location % (len(text) + 1) for location in places}), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def feed_pieces(pieces: list[bytes], stops: list[str]) -> tuple[list[str], str | None]:
    out = TextOutput(StreamDecoder(pieces.__getitem__), stops)
    delivered = [out.feed(token) for token in range(len(pieces))]
    return [*delivered, out.close()], out.stopped


def expected_text(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Find the first position, character by character, at which the text ends with a stop string."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(TEXTS, STOPS, st.lists(st.integers(0, 80), max_size=12))
def test_chunking_does_not_change_text_before_first_stop(text: str, stops: list[str], places: list[int]) -> None:
    delivered, stopped = feed_pieces(cut_bytes(text.encode(), places), stops)
    assert ("".join(delivered), stopped) == expected_text(text, stops)


@given(TEXTS, STOPS, st.lists(st.integers(0, 80), max_size=12))
def test_text_is_held_back_only_for_a_possible_stop(text: str, stops: list[str], places: list[int]) -> None:
    pieces = cut_bytes(text.encode(), places)
    delivered, stopped = feed_pieces(pieces, stops)
    for count in range(1, len(pieces) + 1):
        so_far, sure = b"".join(pieces[:count]).decode(errors="ignore"), "".join(delivered[:count])
        if stopped is None:
            held = so_far[len(sure) :]
            assert not held or any(stop.startswith(held) for stop in stops)


def test_first_completed_stop_string_wins() -> None:
    assert feed_pieces([b"xabcd"], ["abcd", "c"]) == (["xab", ""], "c")
    assert feed_pieces([b"xa", b"bc", b"d"], ["abcd", "c"]) == (["x", "ab", "", ""], "c")


def test_partial_stop_string_is_flushed_at_the_end() -> None:
    assert feed_pieces([b"one<", b"/"], ["</s>"]) == (["one", "", "</"], None)


def test_incomplete_utf8_at_the_end_becomes_replacement_character() -> None:
    assert feed_pieces(["é".encode()[:1]], []) == (["", "\ufffd"], None)
