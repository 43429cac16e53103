"""What `zinc-rt run --probe-tier` prints: for every tier whether it is usable here, why, and what to do."""

from __future__ import annotations

import argparse

from zinc_rt.commands.options import settings
from zinc_rt.commands.output import finish, words
from zinc_rt.errors import UsageError


def probe(arguments: argparse.Namespace) -> int:
    """One line a tier. Exit code 0 where one of those asked for is usable, else 77."""
    from zinc_rt.files import check_writable
    from zinc_rt.report import Report, Result
    from zinc_rt.tiers import probe_tiers

    check_writable(report=arguments.json)
    asked = arguments.tier or settings().tier
    states = [state for state in probe_tiers(arguments.device) if asked in ("auto", state.tier.value)]
    if not states:
        raise UsageError(f"no tier is called {asked!r}", next="zinc-rt run --probe-tier names them all")
    report = Report("run")
    out = words(arguments)
    for state in states:
        print(f"{state.tier.value:<8}  {'usable' if state.usable else 'no':<6}  {state.why}", file=out)
        if state.next:
            print(f"{'':<8}  {'':<6}  next: {state.next}", file=out)
        report.results.append(
            Result(
                state.tier.value,
                "probe-tier",
                "pass" if state.usable else "blocked",
                tier=state.tier.value,
                reason=state.why,
                advice=state.next,
            )
        )
    first = next((state.tier.value for state in states if state.usable), None)
    print(f"auto takes {first}" if first and asked == "auto" else f"{first or 'no tier'} is usable", file=out)
    return finish(report, arguments)
