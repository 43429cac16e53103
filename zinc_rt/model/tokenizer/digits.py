"""Number grouping that an expression could only do in quadratic time: threes counted from the right.

Each function cuts a text into pieces that join to the text again. Source: llama.cpp src/llama-vocab.cpp
(superbpe, tiny_aya) and src/unicode.cpp (`unicode_regex_split_custom_afmoe`).
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

_ASCII_RUN = re.compile("[0-9]+")


def _cut(text: str, points: list[int]) -> list[str]:
    edges = sorted({0, len(text), *points})
    return [text[start:end] for start, end in pairwise(edges)]


def _number_runs(text: str) -> list[tuple[int, int]]:
    """Start and end of each run of Unicode numbers (categories Nd, Nl, No)."""
    if text.isascii():
        return [match.span() for match in _ASCII_RUN.finditer(text)]
    runs: list[tuple[int, int]] = []
    start = None
    for at, char in enumerate(text):
        if unicodedata.category(char)[0] == "N":
            start = at if start is None else start
        elif start is not None:
            runs.append((start, at))
            start = None
    if start is not None:
        runs.append((start, len(text)))
    return runs


def group_numbers(text: str) -> list[str]:
    """afmoe and tiny_aya: every run of numbers becomes one or two leading digits, then threes."""
    points: list[int] = []
    for start, end in _number_runs(text):
        # Only right edges are cuts: the leading group keeps the text before it, for the next stage to cut off.
        points += range(start + ((end - start) % 3 or 3), end + 1, 3)
    return _cut(text, points)


def group_ascii_digits(text: str) -> list[str]:
    r"""superbpe: runs of numbers stand alone, cut before each point with a multiple of three ASCII digits left."""
    points: list[int] = []
    for start, end in _number_runs(text):
        points += [start, end]
        for match in _ASCII_RUN.finditer(text, start, end):
            points += range(match.end() - 3, match.start() - 1, -3)
    return _cut(text, points)
