"""Show each tenant's usage from a ledger, and check its sums."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, printable, start_report
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.cli.report import Result
    from zinc_rt.sched.usage.balance import Sums
    from zinc_rt.sched.usage.prices import PriceList
    from zinc_rt.sched.usage.query import UsageGroup, UsageResult

EXAMPLES = """\
Times are UTC: a day, or a minute of a day. --to is exclusive. The database may be in use; the command reads one
consistent snapshot. Checks L1 to L5 compare the tenants' sums with the device's own counters (docs/ledger.md).
Ttft (time to the first token) and gap (between two tokens) are in milliseconds, within 4.5 %; hit is the share of
prompt tokens from the prefix cache.

examples:
  zinc-rt usage usage.sqlite
  zinc-rt usage usage.sqlite --from 2026-11-01 --to 2026-12-01 --group-by tenant,day
  zinc-rt usage usage.sqlite --from 2026-11-23T14:30 --json -
  zinc-rt usage usage.sqlite --group-by tenant,day --prices prices.yaml
"""
COLUMNS: dict[str, Callable[[Sums], int | str]] = {
    "requests": lambda c: c.get("requests_accepted", 0),
    "prompt": lambda c: c.get("prompt_tokens_computed", 0),
    "cached": lambda c: c.get("prompt_tokens_cached", 0),
    "generated": lambda c: c.get("tokens_generated", 0),
    "recomputed": lambda c: c.get("tokens_recomputed", 0),
    "parks": lambda c: c.get("parks", 0),
    "evictions": lambda c: c.get("evictions", 0),
    "slot steps": lambda c: c.get("slot_steps", 0),
    "device s": lambda c: f"{c.get('device_ns', 0) / 1e9:.3f}",
}
QUALITY: dict[str, Callable[[dict[str, Any]], float | None]] = {  # of latency.quality, in milliseconds and percent
    "ttft p50": lambda q: q["time_to_first_token"]["p50_ms"],
    "ttft p99": lambda q: q["time_to_first_token"]["p99_ms"],
    "gap p50": lambda q: q["inter_token_latency"]["p50_ms"],
    "gap p99": lambda q: q["inter_token_latency"]["p99_ms"],
    "hit %": lambda q: None if q["prefix_hit_rate"] is None else 100 * q["prefix_hit_rate"],
}


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Show each tenant's usage from a ledger database, and check that the sums balance.",
        epilog=EXAMPLES,
    )
    parser.add_argument("database", metavar="DB.sqlite", help="the ledger database; opened read-only")
    parser.add_argument("--from", dest="first", metavar="TIME", help="start of the range: a day or minute")
    parser.add_argument("--to", dest="before", metavar="TIME", help="end of the range, exclusive: a day or minute")
    parser.add_argument(
        "--group-by",
        metavar="WORDS",
        default="tenant",
        help="columns to group by: tenant, model, day, minute, separated by commas (default tenant)",
    )
    parser.add_argument(
        "--prices", metavar="F.yaml", help="also show the cost, by a list of prices per million tokens"
    )
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.host.files import check_writable
    from zinc_rt.host.terminal import number_column, show, show_table
    from zinc_rt.sched.usage.database import UNREADABLE, make_input_error, open_to_read
    from zinc_rt.sched.usage.latency import format_counters, quality, remove_latencies
    from zinc_rt.sched.usage.prices import format_cost, read_prices
    from zinc_rt.sched.usage.query import END, find_usage

    check_writable(report=arguments.json)
    report = start_report(Report("usage"), arguments)
    first = _parse_minute_option(arguments.first, "--from", 0)
    before = _parse_minute_option(arguments.before, "--to", END)
    if first >= before:
        raise UsageError(f"--from {arguments.first} is not before --to {arguments.before}")
    words = arguments.group_by.split(",")
    path = Path(arguments.database)
    prices = None if arguments.prices is None else read_prices(Path(arguments.prices))
    costs: dict[tuple[str, ...], Decimal | None] = {}
    with closing(open_to_read(path)) as database:
        try:
            usage = find_usage(database, first_minute=first, before_minute=before, group_by=words)
            if prices is not None:
                by_model = find_usage(
                    database, first_minute=first, before_minute=before, group_by=[*words, "model"]
                )
                costs = _compute_costs(prices, by_model.groups)
        except UNREADABLE as error:
            raise make_input_error(path, error) from error
    out = choose_output_stream(arguments)
    rows = [
        [
            *(printable(word) for word in group.key),
            *(column(group.counters) for column in COLUMNS.values()),
            *(_format_three_digits(column(quality(group.counters))) for column in QUALITY.values()),
            *([] if prices is None else [format_cost(costs[group.key])]),
        ]
        for group in usage.groups
        if not all(counter.startswith("page_steps.") for counter in group.counters)
    ]
    priced = [] if prices is None else [f"cost {prices.currency}".strip()]
    show_table([*words, *map(number_column, (*COLUMNS, *QUALITY, *priced))], rows, out)
    report.results = _check_balance(usage, whole=not (arguments.first or arguments.before))
    report.details = {
        "database": str(arguments.database),
        "from": _format_minute(usage.first),
        "to": _format_minute(usage.last),
        "group_by": words,
        "groups": [
            {
                **dict(zip(words, group.key, strict=True)),
                **format_counters(group.counters),
                **({} if prices is None else {"cost": format_cost(costs[group.key]) or None}),
            }
            for group in usage.groups
        ],
        **({} if prices is None else {"currency": prices.currency}),
        "usage": remove_latencies(usage.usage),
        "device": usage.device,
    }
    show(_format_verdict(usage, report.results), out=out)
    return finish_report(report, arguments)


def _compute_costs(prices: PriceList, groups: Sequence[UsageGroup]) -> dict[tuple[str, ...], Decimal | None]:
    """Return the cost of each group, None if a model in it has no price. `groups` have the model as their last
    key."""
    parts: dict[tuple[str, ...], list[tuple[str, Sums]]] = {}
    for group in groups:
        *key, model = group.key
        parts.setdefault(tuple(key), []).append((model, group.counters))
    return {key: prices.compute_cost(items) for key, items in parts.items()}


def _check_balance(usage: UsageResult, *, whole: bool) -> list[Result]:
    """Return a result for each line. Tokens may be delivered minutes after generation, so L6 holds only over all
    time."""
    from zinc_rt.cli.report import Result
    from zinc_rt.sched.usage.balance import LINES, l6_delivered

    if usage.first is None:
        return []
    results = []
    for line in LINES:
        if line is not l6_delivered or whole:
            reason = line(usage.usage, usage.device)
            name = line.__name__.partition("_")[0].upper()
            results.append(Result(name, "ledger", "fail" if reason else "pass", reason=reason or ""))
    return results


def _format_verdict(usage: UsageResult, results: list[Result]) -> str:
    if not results:
        return "NOTHING RAN  no step was counted in this range"
    wrong = [f"{result.id}: {result.reason}" for result in results if result.status == "fail"]
    if wrong:
        return f"FAIL  {'; '.join(wrong)}"
    device = usage.device
    sums = (
        f"{device.get('input_tokens', 0):,} tokens and {device.get('logit_rows', 0):,} draws "
        f"in {device.get('steps', 0):,} steps"
    )
    return f"PASS  {_format_minute(usage.first)} to {_format_minute(usage.last)}: {sums} are all accounted for"


def _format_three_digits(value: float | None) -> str:
    """Format a value with three significant digits in positional notation; "" for None."""
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _parse_minute_option(text: str | None, option: str, default: int) -> int:
    if text is None:
        return default
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option}: {text!r} is not a time", next="2026-11-23, or 2026-11-23T14:30, in UTC"
        ) from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() // 60)


def _format_minute(minute: int | None) -> str:
    return "" if minute is None else datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")


main = Command("usage", parser, _run_command)
