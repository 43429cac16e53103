"""Open, update or close the one issue of a chip's nightly regression, with GitHub's `run_gh`."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightly_store import StoreError, git

LABEL = "nightly"
COMMITS = 40  # of a range that are listed
LINES = 30  # of unexpected results


@dataclass(frozen=True)
class NightOutcome:
    """A night's outcome. `good` is the last commit that passed, "" if none is known; `first_bad` is the result of
    a bisection.
    """

    chip: str
    summary: Mapping[str, Any]
    good: str
    bad: str
    run_url: str = ""
    first_bad: str = ""

    @property
    def title(self) -> str:
        return f"nightly {self.chip}: regression"

    @property
    def failed(self) -> bool:
        return bool(self.summary.get("exit"))


def commits_between(repository: Path, good: str, bad: str) -> list[str]:
    """Return the commits after `good` up to `bad`, newest first, one line each; [] if the range is not known."""
    if not good:
        return []
    return git(repository, "log", "--oneline", "--no-decorate", f"{good}..{bad}", check=False).splitlines()


def issue_body(case: NightOutcome, commits: Sequence[str]) -> str:
    """Write the issue's text in Markdown: what failed, between which commits, and how to run it here."""
    rows = [row for row in case.summary.get("stages", []) if row["status"] == "FAIL"]
    unexpected = [f"- `{row['stage']}` {text}" for row in rows for text in row["unexpected"]]
    lines = [
        f"The nightly run of **{case.chip}** fails at {case.bad[:12]}"
        + (f" ([run]({case.run_url}))." if case.run_url else "."),
        "",
        "### Unexpected results",
        *(unexpected[:LINES] or [f"- the run ended with exit code {case.summary.get('exit')}"]),
    ]
    if len(unexpected) > LINES:
        lines.append(f"- and {len(unexpected) - LINES} more")
    lines += ["", "### Commits"]
    if case.first_bad:
        lines += [f"First bad commit, by bisection: **{case.first_bad}**", ""]
    if not case.good:
        lines.append("No earlier night passed, so the range of commits is not known.")
    elif commits:
        lines += [
            f"`{case.good[:12]}..{case.bad[:12]}`, {len(commits)} commits since the last night that passed:",
            "",
        ]
        lines += [f"- {commit}" for commit in commits[:COMMITS]]
    else:
        lines.append(f"None since {case.good[:12]}, which passed: the machine changed, or the result is a flake.")
    names = ",".join(row["stage"] for row in rows)
    text = f"python3 ci/run.py nightly --device {case.summary.get('device', 'sim')} --stages {names} --fresh"
    lines += ["", "### To run it again", "", "```", text, "```", ""]
    return "\n".join(lines)


def run_gh(repository: str, *words: str, text: str = "") -> str:
    """Run gh and return its output. Raise StoreError with its last line."""
    body: list[str] = []
    with tempfile.TemporaryDirectory(prefix="zinc-rt-issue-") as folder:
        if text:
            path = Path(folder) / "body.md"
            path.write_text(text, encoding="utf-8")
            body = ["--body-file", str(path)]
        try:
            line = ["gh", *words, "--repo", repository, *body]
            result = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoreError(f"gh {' '.join(words[:2])}: {error}; install it: https://cli.github.com") from error
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise StoreError(f"gh {' '.join(words[:2])}: {lines[-1] if lines else f'exit {result.returncode}'}")
    return result.stdout


def update_issue(case: NightOutcome, repository: str, checkout: Path) -> str:
    """Update the chip's issue with the result of the night. Return what was done."""
    listed = run_gh(repository, "issue", "list", "--state", "open", "--label", LABEL, "--json", "number,title")
    numbers = [load["number"] for load in json.loads(listed or "[]") if load["title"] == case.title]
    if not case.failed:
        for number in numbers:
            text = f"The night of {case.bad[:12]} passed."
            run_gh(repository, "issue", "close", str(number), "--comment", text)
        return f"closed {', '.join(f'#{number}' for number in numbers)}" if numbers else "no issue is open"
    body = issue_body(case, commits_between(checkout, case.good, case.bad))
    if numbers:
        run_gh(repository, "issue", "edit", str(numbers[0]), text=body)
        note = f"It fails again at {case.bad[:12]}." + (f" {case.run_url}" if case.run_url else "")
        run_gh(repository, "issue", "comment", str(numbers[0]), text=note)
        return f"updated #{numbers[0]}"
    run_gh(repository, "label", "create", LABEL, "--force", "--description", "opened by the nightly run")
    return (
        "opened "
        + run_gh(repository, "issue", "create", "--title", case.title, "--label", LABEL, text=body).strip()
    )
