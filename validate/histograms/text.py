"""The matrix as terminal output: one row per pair; with -v every bin, position and layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from zinc_rt.host.terminal import Column, Page, Table, number_column
from zinc_rt.validate.histograms import bins
from zinc_rt.validate.histograms.matrix import LogitMatrix
from zinc_rt.validate.histograms.pair import TOP, LogitPair, ValueHistogram
from zinc_rt.validate.measure import format_sparkline

COLUMNS: tuple[str | Column, ...] = (
    "logits",
    "against",
    "",
    "differences",
    *map(number_column, ("0", "max abs", "ULP", f"top {TOP} moved", "KL mean", "largest", "top-1")),
)
BAR = 40  # cells of the fullest bin


def format_pages(matrix: LogitMatrix, *, verbose: bool) -> Iterator[Page]:
    """Return the matrix as text; empty if there is only one source, or no pair has a common position."""
    shown = [pair for pair in matrix.pairs if pair.logits is not None]
    if shown:
        yield Page(
            ["", Table(COLUMNS, [_format_row(pair, pair.logits) for pair in shown if pair.logits is not None])]
        )
    if verbose:
        yield from (Page(["", *_format_full_table(pair)]) for pair in matrix.pairs if pair.logits or pair.layers)


def _format_row(pair: LogitPair, logits: ValueHistogram) -> list[str]:
    verdict = "bit-exact" if logits.equal_bits else "FAIL" if pair.wrong else ""
    first = [pair.got, pair.want, verdict, format_spread(logits.differences)]
    if logits.equal_bits:
        return [*first, "all", "0", "0", "0", *_format_agreement(pair)]
    moved = sum(pair.ranks[1:])
    return [
        *first,
        f"{logits.zero / logits.total:.1%}",
        f"{logits.max_abs:.1e}",
        f"< 2^{max((index for index, count in enumerate(logits.ulps) if count), default=0)}",
        f"{moved / sum(pair.ranks):.1%}",
        *_format_agreement(pair),
    ]


def _format_agreement(pair: LogitPair) -> list[str]:
    count = len(pair.positions)
    return [f"{sum(pair.kl) / count:.1e}", f"{max(pair.kl):.1e}", f"{pair.top1}/{count}"]


def format_spread(differences: Sequence[int]) -> str:
    """Format a signed histogram in one line, each side up to the outermost non-empty bin, without the bin of 0:
    -2^-19 ▁▃█▇▂ 0 ▂▇█▃▁ 2^-19
    """
    sides = differences[: bins.ZERO][::-1], differences[bins.ZERO + 1 : bins.NONFINITE]
    farthest = max((index for side in sides for index, count in enumerate(side) if count), default=-1)
    broken = f"{differences[bins.NONFINITE]:,} not finite" if differences[bins.NONFINITE] else ""
    if farthest < 0:
        return broken or "none"
    bars = format_sparkline([*sides[0][farthest::-1], *sides[1][: farthest + 1]])
    edge = f"2^{bins.LOWEST + min(farthest, bins.MAGNITUDES - 2)}{'+' * (farthest == bins.MAGNITUDES - 1)}"
    line = f"-{edge} {bars[: farthest + 1]} 0 {bars[farthest + 1 :]} {edge}"
    return f"{line}, {broken}" if broken else line


def _format_full_table(pair: LogitPair) -> Iterator[str | Table]:
    yield f"{pair.got} against {pair.want}, {_format_rule(pair)}"
    if pair.logits is not None:
        yield _format_bins("difference of logits", pair.logits.differences, bins.name_signed_bin)
        yield _format_bins("ULP", pair.logits.ulps, bins.name_distance_bin)
        yield _format_bins(f"places moved in the top {TOP}", pair.ranks, bins.name_distance_bin)
        rows = [[index, f"{kl:.1e}"] for index, kl in zip(pair.positions, pair.kl, strict=True) if kl != 0]
        yield (
            Table((number_column("position"), number_column("KL")), rows) if rows else "KL is 0 at every position"
        )
    if pair.layers:
        rows = [
            [label, format_spread(item.differences), f"{item.zero / item.total:.1%}", f"{item.max_abs:.1e}"]
            for label, item in pair.layers.items()
        ]
        yield Table(("layer", "differences", number_column("0"), number_column("max abs")), rows)


def _format_rule(pair: LogitPair) -> str:
    return "one ordering: every difference must be 0" if pair.same_bits else "two summation orders or engines"


def _format_bins(title: str, counts: Sequence[int], name: Callable[[int], str]) -> Table:
    """Return a row for each non-empty bin."""
    top = max(counts, default=0) or 1
    rows = [
        [name(index), f"{count:,}", "█" * -(-count * BAR // top)] for index, count in enumerate(counts) if count
    ]
    return Table((number_column(title), number_column("count"), ""), rows)
