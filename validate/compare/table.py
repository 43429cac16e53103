"""The table of compare, one row per peer."""

from __future__ import annotations

from zinc_rt.host.terminal import Column, Table, number_column
from zinc_rt.validate.compare.judge import Distance
from zinc_rt.validate.compare.peer import PeerOutcome

_FIGURES = ("logits", "KL", "top-1", "worst layer", "prefill t/s", "decode t/s")
COLUMNS: tuple[str | Column, ...] = ("peer", "version", *map(number_column, _FIGURES), "")


def make_table(rows: list[tuple[PeerOutcome, Distance]], reference: str) -> Table:
    return Table(COLUMNS, [_format_cells(outcome, values, reference) for outcome, values in rows])


def _format_cells(outcome: PeerOutcome, distance: Distance, reference: str) -> list[str]:
    what = " (simulated)" * outcome.simulated + " (software)" * outcome.software
    return [
        outcome.peer + what,
        outcome.version,
        *_format_values(outcome, distance, reference),
        _format_speed(outcome.prefill_tokens_per_second),
        _format_speed(outcome.decode_tokens_per_second),
        format_state(outcome),
    ]


def _format_values(outcome: PeerOutcome, distance: Distance, reference: str) -> list[str]:
    if outcome.peer == reference and distance.logits is not None:
        return ["reference", "", "", ""]
    if distance.logits is None:
        return [""] * 4
    about = "~" if distance.samples else ""
    logits = "bit-exact" if distance.same_bits else f"{about}{distance.logits:.1e}"
    kl = "" if distance.kl is None else f"{distance.kl:.1e}"
    top1 = "" if distance.top1 is None else f"{distance.top1}/{distance.positions}"
    worst = distance.worst_layer
    layer = "" if worst is None else "equal" if worst[1] == 0 else f"{about}{worst[1]:.1e} ({worst[0]})"
    return [logits, kl, top1, layer]


def _format_speed(tokens_per_second: float | None) -> str:
    if tokens_per_second is None:
        return ""
    return f"{tokens_per_second:.1f}" if tokens_per_second < 1000 else f"{tokens_per_second:.0f}"


def format_state(outcome: PeerOutcome) -> str:
    if outcome.skipped:
        return "skipped"
    return "HANGS" if outcome.hung else "FAILS" if outcome.failed else ""
