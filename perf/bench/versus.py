"""Another program's decode speed, parsed from its output."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.perf.bench.peers import OUTPUT_BYTES, describe_command

# Formats of decode speeds that programs print; the last match of the first matching format counts.
FORMS = (
    re.compile(r"\btg\s?\d+[^|\n]*\|\s*(?:\d+\s*\|\s*)*([\d.]+)\s*(?:±|\+/-|\|)"),  # llama-bench's table
    re.compile(r"\beval time\b.*?([\d.]+) tokens per second"),  # llama-cli
    re.compile(r"([\d.]+)\s*(?:tok/s|tokens/s|t/s)"),
)


@dataclass(slots=True)
class OtherProgram:
    """Another program, run once per call. `outputs` are its outputs, run by run."""

    words: list[str]
    pattern: re.Pattern[str] | None
    timeout_seconds: float
    outputs: list[str] = field(default_factory=list)

    def __call__(self) -> float:
        """Run the program and return its decode speed in tok/s. Raise UsageError if the program does not exist,
        InputError if it fails or prints no speed.
        """
        name = self.words[0]
        try:
            result = subprocess.run(
                self.words, capture_output=True, text=True, timeout=self.timeout_seconds, check=False
            )
        except FileNotFoundError as error:
            raise UsageError(f"--vs: program {name} not found") from error
        except subprocess.TimeoutExpired as error:
            raise InputError(f"--vs: {name} ran longer than {self.timeout_seconds:g} s") from error
        if result.returncode != 0:
            raise InputError(f"--vs: {name} exited with {result.returncode}: {result.stderr.strip()[-300:]}")
        self.outputs.append(result.stdout[:OUTPUT_BYTES])
        return parse_speed(result.stdout + "\n" + result.stderr, result.stdout, self.pattern)

    def record(self) -> dict[str, Any]:
        """Return the program's record for a report."""
        return {**describe_command(self.words), "outputs": list(self.outputs)}


def make_runner(command: str, pattern: str | None, timeout_seconds: float) -> OtherProgram:
    """Return `command` (without a shell) as a callable that returns tok/s. `pattern` is a regular expression whose
    first group is the figure. Raise UsageError for a pattern without a group or an empty command.
    """
    words = shlex.split(command)
    if not words:
        raise UsageError("--vs names no command", next="--vs 'llama-bench -m M.gguf -p 0 -n 128'")
    try:
        matcher = re.compile(pattern) if pattern else None
    except re.error as error:
        raise UsageError(f"--vs-figure {pattern}: {error}") from error
    if matcher is not None and not matcher.groups:
        raise UsageError(f"--vs-figure {pattern}: expected a group around the figure", next="'([0-9.]+) tok/s'")
    return OtherProgram(words, matcher, timeout_seconds)


def parse_speed(text: str, stdout: str, matcher: re.Pattern[str] | None = None) -> float:
    """Parse tok/s from a program's output: JSON of llama-bench or of our own bench, else a form of FORMS. Raise
    InputError if there is none.
    """
    if matcher is None and (speed := _parse_json_speed(stdout)) is not None:
        return speed
    for form in (matcher,) if matcher is not None else FORMS:
        figures = [float(figure) for figure in form.findall(text)]
        if figures and figures[-1] > 0:
            return figures[-1]
    raise InputError(
        f"--vs: found no decode speed in the output: {text.strip()[-200:]!r}",
        next="set the pattern of the speed with --vs-figure 'REGEX'",
    )


def _parse_json_speed(text: str) -> float | None:
    try:
        content: Any = json.loads(text)
    except ValueError:
        return None
    if isinstance(content, list):  # llama-bench -o json: one object a test
        rows = [row for row in content if isinstance(row, dict) and row.get("n_gen") and "avg_ts" in row]
        return float(rows[-1]["avg_ts"]) if rows else None
    if isinstance(content, dict):
        for result in content.get("results", []):
            if result.get("id") in ("decode", "aggregate"):
                return float(result["measure"]["tokens_per_second"])
    return None
