"""Peers that run llama.cpp's own programs, one peer per build. llama-bench gives the speed. The values come from
zinc-llama-dump if it was built (`zinc-rt golden dumper llama-cpp`), otherwise from the output of
llama-eval-callback.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.host.errors import UsageError
from zinc_rt.validate.compare.child import run_child
from zinc_rt.validate.compare.peer import ComparedPeer, PeerOutcome, PeerTask, Sample

HEAD = re.compile(r"^\S+:\s+(\S+) = \((\w+)\)\s.*= \{(\d+), (\d+), (\d+), (\d+)\}\s*$")
NUMBER = r"[-+]?(?:\d+\.\d+|nan|inf)"
ROW = re.compile(rf"^\s*\[\s*({NUMBER}.*?)\s*\],?\s*$", re.IGNORECASE)
SHOWN = 3  # at each end of a dimension that is longer than twice that
DIGITS = 4


def parse_samples(text: str) -> dict[str, Sample]:
    """Parse samples by the tensor's name, the first of each name, matrices only. Unparsable lines are ignored."""
    by_name: dict[str, Sample] = {}
    lines = iter(text.splitlines())
    head = next((match for match in map(HEAD.match, lines) if match), None)
    while head is not None:
        name, width, rows = head[1], int(head[3]), int(head[4])
        values, head = _read_block(lines)
        if name not in by_name and width and rows:
            match = _make_sample(values, rows, width)
            if match is not None:
                by_name[name] = match
    return by_name


def _read_block(lines: Iterator[str]) -> tuple[list[list[float]], re.Match[str] | None]:
    """Read the rows of numbers up to the next tensor. Return them and that tensor."""
    values: list[list[float]] = []
    for line in lines:
        if head := HEAD.match(line):
            return values, head
        if row := ROW.match(line):
            values.append([float(match) for match in re.findall(NUMBER, row[1], re.IGNORECASE)])
    return values, None


def _make_sample(values: list[list[float]], rows: int, width: int) -> Sample | None:
    tokens, dims = _list_shown_indices(rows), _list_shown_indices(width)
    if len(values) != len(tokens) or any(len(row) != len(dims) for row in values):
        return None
    index = np.array([(token, dim) for token in tokens for dim in dims])
    return Sample(index, np.array(values, np.float64).reshape(-1), rows, DIGITS)


def _list_shown_indices(count: int) -> list[int]:
    if count <= 2 * SHOWN:
        return list(range(count))
    return [*range(SHOWN), *range(count - SHOWN, count)]


BENCH, EVAL, DUMP = "llama-bench", "llama-eval-callback", "zinc-llama-dump"
PLACES = ("", "bin", "build/bin", "build-*/bin", "build*/bin")
GET = "build it (cmake -B build -DGGML_HIP=ON, -DGGML_VULKAN=ON or neither) and name its folder: --llama-dir DIR"
ALL_LAYERS = "999"


def find_peers(named: Sequence[str]) -> list[ComparedPeer]:
    """Return one peer per build. `named` are the folders given by the user, DIR or NAME=DIR, each with one or
    several builds. Raise UsageError for a folder without a build.
    """
    builds: dict[Path, str] = {}
    for text in named:
        name, equals, folder = text.rpartition("=")
        programs = list(_find_builds(Path(folder)))
        if not programs:
            raise UsageError(f"--llama-dir {text}: contains neither {BENCH} nor {EVAL}", next=GET)
        for build in programs:
            several = f"{name} {build.parent.name}".strip() if len(programs) > 1 else name
            builds.setdefault(build, several if equals or len(programs) > 1 else "")
    on_path = shutil.which(BENCH) or shutil.which(EVAL)
    if on_path and not named:
        builds.setdefault(Path(on_path).resolve().parent, "")
    if not builds:
        return [ComparedPeer("llama.cpp", _make_unsupported_outcome, (f"no {BENCH} on PATH", GET))]
    return [
        ComparedPeer(f"llama.cpp {name}".strip(), partial(_run, build, name)) for build, name in builds.items()
    ]


def _make_unsupported_outcome(task: PeerTask) -> PeerOutcome:
    raise AssertionError("cannot run a peer that is not installed")


def _find_builds(folder: Path) -> Iterator[Path]:
    seen = set()
    for location in PLACES:
        for program in sorted(folder.glob(location)) if location else [folder]:
            if program.resolve() not in seen and any((program / name).is_file() for name in (BENCH, EVAL)):
                seen.add(program.resolve())
                yield program


def _run(build: Path, name: str, task: PeerTask) -> PeerOutcome:
    outcome = PeerOutcome(f"llama.cpp {name}".strip())
    if task.speed:
        _measure_speed(outcome, build, task)
    if task.values and not outcome.hung:
        _collect_values(outcome, build, task)
    return outcome


def _measure_speed(outcome: PeerOutcome, build: Path, task: PeerTask) -> None:
    program = build / BENCH
    if not program.is_file():
        outcome.notes.append(f"no speed: {program} is not there")
        return
    load = ["-p", str(task.prompt_tokens), "-n", str(task.new_tokens), "-r", str(task.runs)]
    ran = run_child([str(program), "-m", str(task.model), *load, "-o", "json"], task.timeout_seconds)
    if not outcome.take(ran, BENCH):
        return
    try:
        rows = json.loads(ran.stdout)
        _take_rows(outcome, rows)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        outcome.failed = True
        outcome.problem = f"{BENCH}: its JSON is not understood ({error!r})"
        outcome.next = "send what it prints with -o json: its format may have changed"


def _take_rows(outcome: PeerOutcome, rows: list[dict[str, Any]]) -> None:
    """Parse one object per test: n_prompt or n_gen identifies the test, avg_ts is tokens per second."""
    first = rows[0]
    outcome.version = f"b{first['build_number']} ({first['build_commit']})"
    hardware = first.get("gpu_info") or first.get("cpu_info") or ""
    outcome.backend = ", ".join(part for part in (first.get("backends") or "", hardware) if part)
    for row in rows:
        if row["n_prompt"] and not row["n_gen"]:
            outcome.prefill_tokens_per_second = float(row["avg_ts"])
        elif row["n_gen"] and not row["n_prompt"]:
            outcome.decode_tokens_per_second = float(row["avg_ts"])


def _collect_values(outcome: PeerOutcome, build: Path, task: PeerTask) -> None:
    dumper = next((path for path in (build / DUMP, shutil.which(DUMP)) if path and Path(path).is_file()), None)
    context = str(task.ctx or max(256, len(task.tokens)))
    if dumper is not None:
        path = task.folder / f"{outcome.peer.replace(' ', '-')}.npz"
        words = [str(dumper), "-m", str(task.model), "-t", task.ids, "-c", context, "-o", str(path)]
        if outcome.take(run_child(words, task.timeout_seconds), DUMP):
            _take_dump(outcome, path)
        return
    program = build / EVAL
    if not program.is_file():
        outcome.notes.append(f"no values: neither {DUMP} nor {EVAL} in {build}")
    elif not task.text:
        outcome.notes.append(f"no values: {EVAL} takes text only: give --prompt, or build {DUMP}")
    else:
        words = [
            str(program),
            "-m",
            str(task.model),
            "-p",
            task.text,
            "-c",
            context,
            "-n",
            "1",
            "-ngl",
            ALL_LAYERS,
        ]
        ran = run_child(words, task.timeout_seconds)
        if outcome.take(ran, EVAL):
            _take_print(outcome, ran.stdout + "\n" + ran.stderr, len(task.tokens))


def _take_dump(outcome: PeerOutcome, path: Path) -> None:
    with np.load(path) as arrays:
        outcome.logits = arrays["logits"]
        names = [name for name in arrays if name.startswith("l_out-")]
        outcome.layers = {int(name.removeprefix("l_out-")): arrays[name] for name in names}


def _take_print(outcome: PeerOutcome, text: str, tokens: int) -> None:
    printed = parse_samples(text)
    layers = {
        int(name.removeprefix("l_out-")): item for name, item in printed.items() if name.startswith("l_out-")
    }
    if not layers or "result_output" not in printed:
        outcome.failed = True
        outcome.problem = f"{EVAL}: no l_out-N and result_output in what it printed"
        outcome.next = (
            f"its format may have changed; {DUMP} does not depend on it: zinc-rt golden dumper llama-cpp"
        )
        return
    if (row_count := max(layer.rows for layer in layers.values())) != tokens:
        outcome.notes.append(f"no values: its tokenizer makes {row_count} tokens of the prompt, ours {tokens}")
        return
    outcome.sampled_layers, outcome.sampled_logits = layers, printed["result_output"]
