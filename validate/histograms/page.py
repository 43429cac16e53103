"""The matrix as part of validate's page: a small histogram a pair, and each pair in full beneath."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zinc_rt.validate.histograms import bins
from zinc_rt.validate.histograms.matrix import LogitMatrix
from zinc_rt.validate.histograms.pair import LogitPair

SMALL, LARGE = (2, 26), (9, 110)  # a bin's width and the fullest bin's height, in pixels


@dataclass(frozen=True, slots=True)
class Bar:
    """A bin in pixels. `kind`: zero, nonfinite or value; `text`: a description of its content."""

    x: int
    y: float
    width: int
    height: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars whose heights are logarithms of the counts, so that one value in a million is visible."""

    bars: tuple[Bar, ...]
    width: int
    height: int
    ticks: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class LayerStrip:
    """One layer's differences as shades from 0 to 1, one per bin."""

    name: str
    bars: tuple[Bar, ...]
    max_abs: str


@dataclass(frozen=True, slots=True)
class PairSection:
    """One pair in full."""

    pair: LogitPair
    differences: BarChart
    ulps: BarChart
    ranks: BarChart
    kl: BarChart
    layers: tuple[LayerStrip, ...]


@dataclass(frozen=True, slots=True)
class MatrixSection:
    """A model's matrix. `cells` [row][column]: the pair and its small chart above the diagonal, only the pair
    below it, None on it.
    """

    model: str
    names: tuple[str, ...]
    cells: tuple[tuple[tuple[LogitPair, BarChart | None] | None, ...], ...]
    pairs: tuple[PairSection, ...]


def make_matrix_section(matrix: LogitMatrix) -> MatrixSection:
    cells = tuple(
        tuple(_make_cell(matrix, row, column) for column in range(len(matrix.names)))
        for row in range(len(matrix.names))
    )
    return MatrixSection(matrix.model, matrix.names, cells, tuple(map(_make_pair_section, matrix.pairs)))


def _make_cell(matrix: LogitMatrix, row: int, column: int) -> tuple[LogitPair, BarChart | None] | None:
    pair = matrix.find_pair(matrix.names[row], matrix.names[column])
    if pair is None or pair.logits is None:
        return None
    return pair, draw_signed_chart(pair.logits.differences, *SMALL) if row < column else None


def _make_pair_section(pair: LogitPair) -> PairSection:
    logits = pair.logits
    return PairSection(
        pair,
        draw_signed_chart(logits.differences if logits is not None else (), *LARGE, ticks=True),
        _draw_distance_chart(logits.ulps if logits is not None else ()),
        _draw_distance_chart(pair.ranks),
        _draw_kl_chart(pair),
        tuple(
            LayerStrip(label, _draw_shades(item.differences), f"{item.max_abs:.1e}")
            for label, item in pair.layers.items()
        ),
    )


def draw_signed_chart(counts: Sequence[int], width: int, height: int, *, ticks: bool = False) -> BarChart:
    """Draw a signed histogram. The bins of 0 and of non-finite values have separate colours."""
    every = range(-bins.LOWEST % 4, bins.MAGNITUDES, 4) if ticks else ()
    marks = [
        (location * width, f"{sign}2^{bins.LOWEST - 1 + magnitude}")
        for magnitude in every
        if magnitude
        for sign, location in (("-", bins.ZERO - magnitude), ("", bins.ZERO + 1 + magnitude))
    ]
    middle = [(bins.ZERO * width + width // 2, "0")] if ticks else []
    return _draw_chart(counts, width, height, bins.name_signed_bin, (*marks, *middle))


def _draw_distance_chart(counts: Sequence[int]) -> BarChart:
    last = max((index for index, count in enumerate(counts) if count), default=0)
    return _draw_chart(counts[: last + 1], 18, 60, bins.name_distance_bin)


def _draw_kl_chart(pair: LogitPair) -> BarChart:
    """Draw one bar per position on a linear axis."""
    top = max((kl for kl in pair.kl if math.isfinite(kl)), default=0.0) or 1.0
    width = max(2, min(18, 600 // max(1, len(pair.kl))))
    bars = []
    for index, (position, kl) in enumerate(zip(pair.positions, pair.kl, strict=True)):
        tall = round(60 * kl / top, 1) if math.isfinite(kl) else 60
        kind = "value" if math.isfinite(kl) else "nonfinite"
        bars.append(Bar(index * width, 60 - tall, width - 1, tall, kind, f"position {position}: {kl:.2e}"))
    return BarChart(tuple(bars), max(1, len(bars) * width), 60)


def _draw_chart(
    counts: Sequence[int],
    width: int,
    height: int,
    name: Callable[[int], str],
    ticks: tuple[tuple[int, str], ...] = (),
) -> BarChart:
    bars = []
    for location, share in enumerate(_scale_logarithms(counts)):
        tall = round(height * share, 1)
        text = f"{name(location)}: {counts[location]:,}"
        bars.append(Bar(location * width, height - tall, max(1, width - 1), tall, _bin_kind(location, name), text))
    return BarChart(tuple(bars), max(1, len(counts) * width), height, ticks)


def _draw_shades(counts: Sequence[int]) -> tuple[Bar, ...]:
    """Draw a strip of squares of height 1; the `height` field is the shade."""
    width, name = LARGE[0], bins.name_signed_bin
    return tuple(
        Bar(
            location * width,
            0,
            width - 1,
            round(share, 2),
            _bin_kind(location, name),
            f"{name(location)}: {counts[location]:,}",
        )
        for location, share in enumerate(_scale_logarithms(counts))
        if share
    )


def _scale_logarithms(counts: Sequence[int]) -> list[float]:
    """Return each count's logarithm relative to the largest; 0 for an empty bin."""
    top = math.log2(1 + max(counts, default=0)) or 1.0
    return [math.log2(1 + count) / top for count in counts]


def _bin_kind(place: int, name: Callable[[int], str]) -> str:
    text = name(place)
    return "zero" if text == "0" else "nonfinite" if text == "not finite" else "value"
