"""Export the store as a KCIDB report: kernels as checkouts, kernel and module as builds, results as tests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

from zinc_rt.doctor.bundle.kcidb_fields import MAJOR, MINOR, MOST_LOG, find_problems
from zinc_rt.doctor.bundle.store import StoredMachine, StoredOutcome
from zinc_rt.host.errors import OutputError

ORIGIN = "zinc_rt"
# pass … blocked, as KCIDB counts them: a flake has run and settled nothing, a blocked criterion was never reached.
STATUS = {"pass": "PASS", "fail": "FAIL", "skip": "SKIP", "flake": "DONE", "blocked": "MISS"}


def export_machines(
    machines: Iterable[StoredMachine], *, simulated: bool = False, origin: str = ORIGIN
) -> dict[str, Any]:
    """Return the store as KCIDB's JSON. `simulated`: include simulated devices, which prove nothing about a
    kernel. Raises OutputError if KCIDB would reject the export.
    """
    checkouts: dict[str, dict[str, Any]] = {}
    builds: dict[str, dict[str, Any]] = {}
    tests = []
    for machine in machines:
        if machine.simulated and not simulated:
            continue
        configuration = machine.combination
        kernel = configuration.kernel or "unknown"
        checkout, build = f"{origin}:{kernel}", f"{origin}:{_hash_words(kernel, configuration.module)}"
        checkouts.setdefault(
            checkout, {"id": checkout, "origin": origin, "git_commit_name": kernel, "misc": {"release": kernel}}
        )
        builds.setdefault(
            build,
            {
                "id": build,
                "origin": origin,
                "checkout_id": checkout,
                "architecture": "x86_64",
                "comment": f"amdgpu {configuration.module}" if configuration.module else "in-tree amdgpu",
                "misc": {"kernel": kernel, "module": configuration.module, "os": configuration.os},
            },
        )
        tests += [_build_test(machine, outcome, build, origin) for outcome in machine.outcomes]
    report = {
        "version": {"major": MAJOR, "minor": MINOR},
        "checkouts": list(checkouts.values()),
        "builds": list(builds.values()),
        "tests": tests,
    }
    wrong = next(find_problems(report), None)
    if wrong is not None:
        raise OutputError(f"the export is not valid in KCIDB's schema: {wrong}", next="please report it")
    return report


def _build_test(machine: StoredMachine, outcome: StoredOutcome, build: str, origin: str) -> dict[str, Any]:
    configuration = machine.combination
    excerpt = "\n".join(filter(None, (outcome.reason, outcome.cause and f"cause: {outcome.cause}")))
    test: dict[str, Any] = {
        "id": f"{origin}:{machine.id}:{outcome.command}:{outcome.id}".replace("\0", ""),
        "origin": origin,
        "build_id": build,
        "path": ".".join([ORIGIN, _format_path_part(outcome.command),
        *(_format_path_part(part) for part in outcome.id.split("/"))]),
        "status": STATUS.get(outcome.status, "ERROR"),
        "environment": {
            "comment": f"{'SIMULATED ' if machine.simulated else ''}{configuration.chip or 'unknown chip'}",
            "misc": {"chip": configuration.chip, "pci_id": configuration.pci_id,
                      "card": configuration.card, "vbios": configuration.vbios,
                     "firmware": dict(configuration.firmware), "parameters": dict(configuration.parameters),
                     "simulated": machine.simulated},
        },
        "misc": {"kind": outcome.kind, "tier": outcome.tier, "status": outcome.status, "bundle": machine.id},
    }  # fmt: skip
    if outcome.title:
        test["comment"] = outcome.title.replace("\0", "")
    if excerpt:
        test["log_excerpt"] = excerpt.replace("\0", "")[:MOST_LOG]
    if outcome.seconds is not None:
        test["duration"] = outcome.seconds
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d|Z)", outcome.started):
        test["start_time"] = outcome.started
    return test


def _format_path_part(text: str) -> str:
    """Return a text as one part of a test's path, which dots separate."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", text) or "_"


def _hash_words(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
