"""List the simulator's unverified assumptions, with dependants.

The assumptions are rows of zinc_rt/host/facts.yaml, the table of everything that the simulated device models.
--flip negates one and runs the dependent probes again. A probe that then fails would also fail on a card with that
behaviour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import Command, find_commands
from zinc_rt.cli.observer import CommandObserver, make_observer
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.terminal import Column, Table, number_column

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from zinc_rt.cli.report import Report
    from zinc_rt.engine.engine import Engine
    from zinc_rt.host.facts import Fact
    from zinc_rt.probes.learning.leaning import Leaning
    from zinc_rt.sim.facts import FactsFile

EPILOG = """\
examples:
  zinc-rt assumptions                                list all, those with the most dependants first
  zinc-rt assumptions -v protected_fence             one assumption with its reason and dependants
  zinc-rt assumptions --all chip/                    all facts of that kind with their sources
  zinc-rt assumptions --flip protected_fence         run the dependent probes with the assumption negated
  zinc-rt assumptions --flip function_bits -- validate --tiers t1,t_cpu
                                                     run any command on a simulated device the same way

Exit code: 0 listed, or everything passed with the row negated; 1 something failed; 2 wrong usage.
"""
LEARNED = Path(__file__).resolve().parent.parent / "learned"
MOST_WORDS = 58


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    parser.add_argument("which", nargs="*", metavar="ID", help="only rows whose id starts with ID (default: all)")
    parser.add_argument(
        "--all", action="store_true", help="also list documented, source-derived and measured facts"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="show the reason and the dependants of each row"
    )
    add_json(parser)
    parser.add_argument("--flip", action="append", default=[], metavar="ID", help="negate this assumption")
    parser.add_argument(
        "--record",
        action="store_true",
        help="treat the IDs as report files and record their dependencies in the source tree",
    )
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    wrapped: list[str] | None = arguments.wrapped
    if wrapped is not None and not (wrapped and arguments.flip):
        raise UsageError("-- COMMAND requires --flip ID", next="zinc-rt assumptions --help")
    if arguments.flip:
        if arguments.which or arguments.all or arguments.record or arguments.json:
            raise UsageError(
                "--flip must be used alone, or with -- COMMAND", next="put --json after the --, for COMMAND"
            )
        return _negate_facts(arguments.flip, wrapped or [], make_observer(arguments))
    if arguments.record:
        return _record_dependencies(arguments.which)
    return _list_facts(arguments)


# --- listing ---


def _list_facts(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.facts import ORIGINS, load_table
    from zinc_rt.host.files import check_writable
    from zinc_rt.probes.learning import leaning

    check_writable(report=arguments.json)
    leans, learned = leaning.load_dependencies(), read_cards(LEARNED)
    rows = [row for row in load_table().values() if arguments.all or row.assumed]
    if arguments.which:
        rows = [row for row in rows if any(row.id.startswith(item) for item in arguments.which)]
        if not rows:
            raise UsageError(f"no such row: {', '.join(arguments.which)}", next="zinc-rt assumptions --all")
    rows.sort(key=lambda row: -len(leaning.find_dependents(leans, row.id)))
    counts = {origin: sum(row.origin == origin for row in load_table().values()) for origin in ORIGINS}
    report = start_report(Report("assumptions", details={"counts": counts}), arguments)
    report.results.append(Result("facts.yaml", "table", "pass", measure=dict(counts)))
    for row in rows:
        report.results.append(
            _make_result(row, leaning.find_dependents(leans, row.id), _format_card(row, learned))
        )
    words = ", ".join(f"{count} {origin}" for origin, count in counts.items())
    terminal.show(
        _format_verbose(rows, leans, learned)
        if arguments.verbose
        else _make_table(rows, leans, learned, all_=arguments.all),
        f"\n{sum(counts.values())} facts: {words}; cards measured: {len(learned)}",
        out=choose_output_stream(arguments),
    )
    return finish_report(report, arguments)


def read_value(row: Fact) -> Any:
    """Return the value of a row, or of the constants it refers to; None if only text describes it."""
    from importlib import import_module

    from zinc_rt.sim.chips import CHIPS

    if row.kind == "chip":
        _, chip, field = row.id.split("/")
        return {key: _to_plain(getattr(item, field)) for key, item in CHIPS.items() if chip in ("*", key)}
    if row.code:
        module, _, name = row.code.partition(":")
        return getattr(import_module(module), name)
    return row.value


def _to_plain(value: Any) -> Any:
    """Convert blocks and firmware to plain fields."""
    return value if isinstance(value, int | str | None) else str(value)


def read_cards(folder: Path) -> dict[str, FactsFile]:
    """Return the results of cards, by file; those of a simulated device are ignored. Raises InputError."""
    from zinc_rt.sim.facts import parse

    files = {}
    for path in sorted(folder.glob("*.json")):
        try:
            facts = parse(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
        if not facts.simulated:
            files[path.name] = facts
    return files


def _format_card(row: Fact, learned: dict[str, FactsFile]) -> str:
    """Return the values that cards reported for a row."""
    learned_values = [
        f"{facts.facts[row.id].value!r} ({name})" for name, facts in learned.items() if row.id in facts.facts
    ]
    return "; ".join(learned_values)


def _make_result(row: Fact, dependencies: Sequence[str], card: str) -> Any:
    from zinc_rt.cli.report import Result

    settled = bool(card) or not row.assumed
    return Result(
        row.id,
        "fact",
        "pass" if settled else "skip",
        reason="" if settled else f"assumed; settled by {', '.join(row.settled_by)}",
        measure={
            "says": row.says,
            "from": "measured" if card else row.origin,
            "where": card or row.where,
            "value": read_value(row),
            "other": list(row.other),
            "settled_by": list(row.settled_by),
            "leaning": list(dependencies),
        },
    )


def _make_table(
    rows: Sequence[Fact], dependencies: Leaning, learned: dict[str, FactsFile], *, all_: bool
) -> Table:
    from zinc_rt.probes.learning import leaning

    lines = []
    for row in rows:
        card = _format_card(row, learned)
        origin = "measured" if card else row.origin
        last = (card or row.where) if all_ and not row.assumed else ", ".join(row.settled_by)
        lines.append(
            [
                row.id,
                *[origin] * all_,
                len(leaning.find_dependents(dependencies, row.id)),
                "*" * bool(row.other),
                row.says,
                last,
            ]
        )
    columns: list[str | Column] = [
        Column("id", widest=34),
        *["from"] * all_,
        number_column("leaning"),
        "flip",
        Column("says", widest=MOST_WORDS),
        Column("source, or settled by" if all_ else "settled by", widest=36),
    ]
    return Table(columns, lines)


def _format_verbose(rows: Sequence[Fact], dependencies: Leaning, learned: dict[str, FactsFile]) -> str:
    from zinc_rt.probes.learning import leaning

    blocks = []
    for row in rows:
        value, on = read_value(row), leaning.find_dependents(dependencies, row.id)
        lines = [row.id, f"  says      {row.says}", f"  {'because' if row.assumed else row.origin:<10}{row.where}"]
        lines += [f"  value     {value!r}"] if value is not None else []
        lines += [f"  or        {', '.join(map(str, row.other))}"] if row.other else []
        lines += [f"  settled   {', '.join(row.settled_by)}"] if row.settled_by else []
        card = _format_card(row, learned)
        lines += [f"  measured  {card}"] if card else []
        lines += [f"  leaning   {len(on)}: {', '.join(on)}"] if on else []
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


# --- flipping ---


class _FlipNote(CommandObserver):
    """Note the negated rows in each report of a command; events are passed to the previous observer."""

    def __init__(self, rows: Sequence[Fact], outer: CommandObserver) -> None:
        self._rows, self._outer = rows, outer
        self.records_engines = outer.records_engines

    def around_engine(self, engine: Engine) -> AbstractContextManager[object]:
        return self._outer.around_engine(engine)

    def report_begun(self, report: Report) -> None:
        report.shortcuts += [f"the simulated device has assumption {row.id} negated" for row in self._rows]


def _negate_facts(ids: Sequence[str], command: Sequence[str], observer: CommandObserver) -> int:
    """Negate the assumption for every simulated device that this process opens from now on."""
    from zinc_rt.host.facts import flipped
    from zinc_rt.probes.learning import leaning
    from zinc_rt.sim import flip

    rows = flip.find_rows(ids)
    words = list(command) or _dependent_probes_command(rows, leaning.load_dependencies())
    points = find_commands()
    if words[0] not in points:
        raise UsageError(f"no command {words[0]!r}", next="-- pm4-test --device sim, or another of zinc-rt --help")
    for row in rows:
        terminal.show(f"flipped   {row.id}: {row.other[0]} instead of {_format_value(row)}", out=sys.stderr)

    token = flipped.set(tuple(row.id for row in rows))
    try:
        run: Command = points[words[0]].load()
        return run(words[1:], observer=_FlipNote(rows, observer))
    finally:
        flipped.reset(token)


def _format_value(row: Fact) -> str:
    value = read_value(row)
    return str(value) if value is not None and row.other != ("stops",) else "what it does"


def _dependent_probes_command(rows: Sequence[Fact], dependencies: Leaning) -> list[str]:
    from zinc_rt.probes.learning import leaning

    names = [
        name
        for row in rows
        for name in leaning.find_dependents(dependencies, row.id)
        if name.startswith("pm4-test ")
    ]
    probes = list(dict.fromkeys(name.removeprefix("pm4-test ").partition("/")[0] for name in names))
    if not probes:
        raise UsageError(
            f"no probe is known to depend on {', '.join(row.id for row in rows)}",
            next="give a command to run: zinc-rt assumptions --flip ID -- pm4-test --device sim",
        )
    return ["pm4-test", "--device", "sim", "-k", ",".join(probes)]


def _record_dependencies(reports: Sequence[str]) -> int:
    from zinc_rt.probes.learning import leaning

    if not reports:
        raise UsageError("--record needs reports", next="zinc-rt pm4-test --device sim --json REPORT.json")
    dependencies = leaning.read_reports([Path(report) for report in reports])
    leaning.save_dependencies(dependencies)
    terminal.show(f"{leaning.FILE}: {len(dependencies)} results")
    return 0


main = Command("assumptions", parser, _run_command, before_another=("--",))
