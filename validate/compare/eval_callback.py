"""What llama-eval-callback prints, as sampled values: of each tensor its first and last three in every dimension.

    common_debug_cb_eval:   l_out-0 = (f32)  ADD(ffn_out-0{64, 5, 1, 1}, ffn_inp-0{64, 5, 1, 1}}) = {64, 5, 1, 1}
        [
            [
                [     -0.0181,       0.0272,       0.0272,    ...,        0.1001,       0.2002,       0.3003  ],

Format: common/debug.cpp of llama.cpp, and examples/eval-callback before 2026; %12.4f, no scale.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from zinc_rt.validate.compare.peer import Sample

HEAD = re.compile(r"^\S+:\s+(\S+) = \((\w+)\)\s.*= \{(\d+), (\d+), (\d+), (\d+)\}\s*$")
NUMBER = r"[-+]?(?:\d+\.\d+|nan|inf)"
ROW = re.compile(rf"^\s*\[\s*({NUMBER}.*?)\s*\],?\s*$", re.IGNORECASE)
SHOWN = 3  # at each end of a dimension that is longer than twice that
DIGITS = 4


def samples(text: str) -> dict[str, Sample]:
    """The samples by the tensor's name, the first of each name; matrices only. What is not understood is left
    out."""
    found: dict[str, Sample] = {}
    lines = iter(text.splitlines())
    head = next((made for made in map(HEAD.match, lines) if made), None)
    while head is not None:
        name, width, rows = head[1], int(head[3]), int(head[4])
        values, head = _block(lines)
        if name not in found and width and rows:
            made = _sample(values, rows, width)
            if made is not None:
                found[name] = made
    return found


def _block(lines: Iterator[str]) -> tuple[list[list[float]], re.Match[str] | None]:
    """The rows of numbers up to the next tensor, and that."""
    values: list[list[float]] = []
    for line in lines:
        if head := HEAD.match(line):
            return values, head
        if row := ROW.match(line):
            values.append([float(each) for each in re.findall(NUMBER, row[1], re.IGNORECASE)])
    return values, None


def _sample(values: list[list[float]], rows: int, width: int) -> Sample | None:
    tokens, dims = _shown(rows), _shown(width)
    if len(values) != len(tokens) or any(len(row) != len(dims) for row in values):
        return None
    at = np.array([(token, dim) for token in tokens for dim in dims])
    return Sample(at, np.array(values, np.float64).reshape(-1), rows, DIGITS)


def _shown(count: int) -> list[int]:
    if count <= 2 * SHOWN:
        return list(range(count))
    return [*range(SHOWN), *range(count - SHOWN, count)]
