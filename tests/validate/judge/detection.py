# ruff: noqa: E402
"""Measure how many planted defects the judge finds: `python3 ci/run.py judge-defects [NAME ...]`.

A proxy with one defect stands in front of a correct engine: ours with the model --model, a run of judge-engines
such as --engine llama-server-b10434/smollm2-135m/default, or the engine at --url. Every defect runs in three
strengths: every answer, one in 50, only with 8 requests at the same time. Prints a line for each run and the share
of defects that were found and classified correctly. --json continues an interrupted command: the runs of its file
are not repeated. A defect that never occurred, because the engine cannot show it, is not counted.

The engine answers a request at most 1 + --variants times, once alone and otherwise in crowds. Later requests get
one of these answers: an engine whose answers never vary needs one variant.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "ci"), str(ROOT / "tests" / "serve"), str(Path(__file__).resolve().parent)]

from embedded_server import make_config, run_server
from judge_engines import RUNS, start_run
from lying_proxy import LIES, ProxyFault, RecordedAnswers, Strength, lying_proxy

from zinc_rt.engine.opening import find_model_file
from zinc_rt.serve.config.settings import DeviceSettings, ModelSettings
from zinc_rt.validate.judge.engine_client import EngineClient
from zinc_rt.validate.judge.judgement import JudgeOptions, judge_engine
from zinc_rt.validate.judge.oracle import Oracle, open_oracle

MODEL = "qwen3-q"
FIGURES = ("found", "right")


@dataclass(frozen=True)
class EngineUnderTest:
    """A correct engine, its model, the reference for it, and its answers so far."""

    name: str
    url: str
    model: Path
    reference: Oracle
    recorded: RecordedAnswers


@contextmanager
def run_own_engine(model: str, ctx: int) -> Iterator[str]:
    """Yield the URL of this runtime's server with a model on the CPU."""
    models = (ModelSettings(model, model, ctx=ctx, slots=8),)
    config = make_config(models=models, device=DeviceSettings("t_cpu_native", threads=1))
    with contextmanager(run_server)(config) as engine:
        yield engine.url


@contextmanager
def open_engine(arguments: argparse.Namespace) -> Iterator[EngineUnderTest]:
    """Start the engine of the command line, or take the running one, and open its reference."""
    recorded = RecordedAnswers(crowd=arguments.variants)
    name = arguments.engine or f"{arguments.url or 'ours'}/{arguments.model}"
    with ExitStack() as stack:
        if arguments.engine:
            run = next(run for run in RUNS if run.name == arguments.engine)
            url, path = stack.enter_context(start_run(run, offline=arguments.offline))
            model = Path(path)
        else:
            url = arguments.url or stack.enter_context(run_own_engine(arguments.model, arguments.ctx))
            model = find_model_file(arguments.model)
        reference = stack.enter_context(open_oracle(model, arguments.ctx))
        yield EngineUnderTest(name, url, model, reference, recorded)


def measure_detection(
    engine: EngineUnderTest, lie: ProxyFault, strength: Strength, options: JudgeOptions
) -> dict[str, object]:
    """Judge an engine through a proxy with a defect. Return the row of the table."""
    start, cpu_start = time.monotonic(), time.process_time()
    with lying_proxy(engine.url, lie, strength, engine.recorded) as (url, proxy):
        judgement = judge_engine(EngineClient(url), engine.model, options, engine.reference)
    kinds = [finding.kind for finding in judgement.findings]
    reproducers = [item.attempts for item in judgement.reproducers if item is not None]
    return {
        "engine": engine.name,
        "seed": options.seed,
        "defect": lie.name,
        "strength": strength,
        "expected": lie.kind,
        "lies": proxy.lies,
        "requests": proxy.requests,
        "answers": min(judgement.answers.values()),
        "found": bool(kinds),
        "right": bool(kinds) and kinds[0] == lie.kind,
        "findings": kinds,
        "attempts": reproducers[:1],
        "summary": judgement.findings[0].summary if kinds else "",
        "seconds": round(time.monotonic() - start, 1),
        "cpu_seconds": round(time.process_time() - cpu_start, 1),  # without the engine's
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="ci/run.py judge-defects", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="defects, by a part of their names (default: all)"
    )
    parser.add_argument("--strength", choices=get_args(Strength), action="append", help="default: all three")
    engine = parser.add_mutually_exclusive_group()
    engine.add_argument("--engine", choices=[run.name for run in RUNS], metavar="RUN", help="of judge-engines")
    engine.add_argument("--url", help="a running engine that serves --model (default: start ours)")
    parser.add_argument("--offline", action="store_true", help="with --engine: download nothing")
    parser.add_argument("--model", default=MODEL, help=f"a GGUF file (default {MODEL})")
    parser.add_argument("--answers", type=int, default=200, help="of each kind of question (default 200)")
    parser.add_argument("--ctx", type=int, default=512, help="of the engine (default 512)")
    parser.add_argument("--budget", type=float, default=3600, help="seconds for a judgement (default 3600)")
    parser.add_argument("--variants", type=int, default=1, help="answers of the engine in crowds (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="of the questions (default 1)")
    parser.add_argument("--json", type=Path, help="append a line for each run; skip runs of this file")
    arguments = parser.parse_args()
    lies = [lie for lie in LIES if not arguments.names or any(name in lie.name for name in arguments.names)]
    options = JudgeOptions(
        answers=arguments.answers,
        seed=arguments.seed,
        ctx=arguments.ctx,
        budget_seconds=arguments.budget,
    )
    known = _read_measured(arguments.json)
    rows = []
    with open_engine(arguments) as engine:
        for strength in arguments.strength or get_args(Strength):
            for lie in lies:
                key = engine.name, lie.name, strength, arguments.seed
                if (row := known.get(key)) is None:
                    row = measure_detection(engine, lie, strength, options)
                    if arguments.json:
                        with arguments.json.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                rows.append(row)
                print_row(row)
    occurred = [row for row in rows if row["lies"]]
    for strength in dict.fromkeys(row["strength"] for row in rows):
        same = [row for row in occurred if row["strength"] == strength]
        shares = (f"{sum(bool(row[name]) for row in same)} {name}" for name in FIGURES)
        never = sum(row["strength"] == strength for row in rows) - len(same)
        print(
            f"{strength:<10} {len(same)} defects: {', '.join(shares)}"
            + (f"; {never} never occurred" * bool(never))
        )
    return 0 if all(row["right"] for row in occurred) else 1


def _read_measured(path: Path | None) -> dict[tuple[object, ...], dict[str, object]]:
    """Return the measured rows of a file by engine, defect, strength and seed of the questions."""
    if path is None or not path.is_file():
        return {}
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return {(row["engine"], row["defect"], row["strength"], row["seed"]): row for row in rows}


def print_row(row: dict[str, object]) -> None:
    verdict = "right" if row["right"] else "found" if row["found"] else "MISSED" if row["lies"] else "never"
    print(
        f"{row['strength']:<10} {row['defect']:<40} {verdict:<7} {row['lies']:>5} of {row['requests']:<6} "
        f"{row['seconds']:>6} s  {', '.join(map(str, row['findings']))}",  # type: ignore[call-overload]
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
