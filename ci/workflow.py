#!/usr/bin/env python3
"""Run a job of .github/workflows here, step by step, without GitHub.

The `run:` lines of the job are executed by bash as GitHub does it. Steps that `uses:` an action are not run: the
checkout is this folder, and an uploaded path is only checked. Expressions in ${{ }} may be a name (vars, matrix,
secrets, github, env), a literal, and both with ||.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
NAME = re.compile(r"(vars|matrix|secrets|github|env)\.([A-Za-z_][A-Za-z0-9_-]*)")
LITERAL = re.compile(r"'([^']*)'")
EXAMPLES = """\
examples:
  python3 ci/run.py workflow nightly simulator
  python3 ci/run.py workflow nightly hardware --set matrix.chip=gfx1201 --set vars.NIGHTLY_MODELS=/models/A.gguf
  python3 ci/run.py workflow nightly simulator --list

exit codes: 0 every step succeeded, 1 a step failed, 2 wrong usage or a workflow that this script cannot run.
"""


class CannotRun(Exception):
    """The workflow uses a feature that this script does not support."""


@dataclass(frozen=True)
class Job:
    """A job with the values of its expressions by name, such as vars.NIGHTLY_CHIPS."""

    name: str
    row: Mapping[str, Any]
    workflow_env: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    def text(self, value: object) -> str:
        """Replace the expressions of a value. Raise CannotRun for an unknown one."""
        return EXPRESSION.sub(lambda match: self._evaluate(match[1]), str(value))

    def _evaluate(self, expression: str) -> str:
        for part in expression.split("||"):
            word = part.strip()
            if literal := LITERAL.fullmatch(word):
                value = literal[1]
            elif NAME.fullmatch(word):
                value = self.values.get(word, "")
            else:
                raise CannotRun(f"job {self.name}: unsupported expression {expression!r}")
            if value:
                return value
        return ""

    def environment(self, step: Mapping[str, Any]) -> dict[str, str]:
        rows = {**self.workflow_env, **self.row.get("env", {}), **step.get("env", {})}
        return {name: self.text(value) for name, value in rows.items()}


def load_jobs(name: str) -> dict[str, Any]:
    """Load a workflow. Raise CannotRun for a missing or unreadable file."""
    path = WORKFLOWS / f"{name}.yml"
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise CannotRun(f"{path}: {error}") from error
    return dict(content)


def step_title(step: Mapping[str, Any]) -> str:
    return str(step.get("name") or step.get("uses") or str(step["run"]).strip().splitlines()[0])


def run_job(job: Job, folder: Path = ROOT) -> int:
    """Run the steps. After a failure, only steps with `if: always()` or `if: failure()` run. Return 0 or 1."""
    failed: list[str] = []
    for step in job.row["steps"]:
        condition = str(step.get("if", "success()"))
        if condition not in ("always()", "success()", "failure()"):
            raise CannotRun(f"job {job.name}: unsupported condition {condition!r}")
        runs = condition == "always()" or (condition == "failure()") == bool(failed)
        title = step_title(step)
        if not runs:
            print(f"--- skipped: {title}", flush=True)
            continue
        print(f"--- {title}", flush=True)
        if "uses" in step:
            path = step.get("with", {}).get("path")
            if "upload" in step["uses"] and not (folder / job.text(path)).exists():
                failed.append(f"{title}: {path} does not exist")
            continue
        environment = {**os.environ, **job.environment(step)}
        line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", job.text(step["run"])]
        code = subprocess.run(line, cwd=folder, env=environment, check=False).returncode
        if code and not step.get("continue-on-error"):
            failed.append(f"{title}: exit {code}")
    for item in failed:
        print(f"FAILED  {item}")
    print(f"{'FAIL' if failed else 'PASS'}  job {job.name}, {len(job.row['steps'])} steps")
    return 1 if failed else 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="ci/run.py workflow", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("workflow", help="name of a file in .github/workflows, without .yml")
    parser.add_argument("job")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="vars.X=..., matrix.chip=..."
    )
    parser.add_argument("--list", action="store_true", help="show the steps without running them")
    arguments = parser.parse_args(argv)
    try:
        workflow = load_jobs(arguments.workflow)
        jobs = workflow["jobs"]
        if arguments.job not in jobs:
            raise CannotRun(f"unknown job {arguments.job!r}; available: {', '.join(jobs)}")
        pairs = [item.partition("=") for item in arguments.set]
        if wrong := next((pair for pair in pairs if not pair[1] or not NAME.fullmatch(pair[0])), None):
            raise CannotRun(f"--set {wrong[0]}: expected for example vars.NIGHTLY_CHIPS=VALUE")
        job = Job(
            arguments.job, jobs[arguments.job], workflow.get("env", {}), {name: value for name, _, value in pairs}
        )
        if arguments.list:
            print("\n".join(step_title(step) for step in job.row["steps"]))
            return 0
        return run_job(job)
    except CannotRun as error:
        print(f"workflow: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
