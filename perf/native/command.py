"""Compare the CPU tier with llama.cpp in alternating runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt.cli.output import choose_output_stream, start_report
from zinc_rt.host import terminal
from zinc_rt.host.terminal import Column, Table

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.perf.native.bandwidth import Bandwidth
    from zinc_rt.perf.native.bench import NativeBench, NativeCase
    from zinc_rt.perf.native.llama_cpp import LlamaCpp

HELP = "compare the CPU tier with llama.cpp: decode, prefill, 16 slots, bandwidth, memory"
EXAMPLES = """\
The models are synthetic and are generated in the cache folder on first use (zinc_rt.perf.synthetic --list).
llama.cpp is built there once, from the source package of llama-cpp-python, which takes about 10 CPU minutes and
needs cmake, ninja and a C++ compiler. --llama FOLDER uses an existing build, --llama none omits llama.cpp.

Every round runs llama.cpp with repacked and with original weights; ratios refer to the faster one. A ratio counts
only if the machine was idle otherwise. If it was not, the result is BLOCKED with the reason.

examples:
  zinc-rt perf native
  zinc-rt perf native --models qwen3-0.6b-q8_0 --json runs/native.json --history runs/history.jsonl
  zinc-rt perf gate --milestone cpu --evidence runs/ --history runs/history.jsonl
  zinc-rt perf native --models qwen3-0.6b-q8_0 --rounds 1 --llama none

exit codes: 0 at least one result is valid, 1 a limit is exceeded, 77 all results are BLOCKED. zinc-rt perf gate
decides whether a ratio is sufficient.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default="", metavar="A,B", help="subset of the default models (default: all)")
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="rounds (default 5; fewer give no verdict)"
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="number of threads for both programs (default: physical cores)"
    )
    parser.add_argument(
        "--tier", default="t_cpu_native", metavar="TIER", help="tier to measure (default t_cpu_native)"
    )
    parser.add_argument(
        "--llama", default="", metavar="FOLDER", help="folder of llama-bench; none: omit llama.cpp"
    )
    parser.add_argument("--history", type=Path, metavar="F.jsonl", help="append the report to this history")


def run(arguments: argparse.Namespace) -> int:
    import os
    from dataclasses import asdict

    from zinc_rt.cli import options
    from zinc_rt.cli.describe import describe_model
    from zinc_rt.cli.output import finish_report
    from zinc_rt.cli.report import Report
    from zinc_rt.host.files import check_writable
    from zinc_rt.host.machine import describe_host
    from zinc_rt.host.version import digest_runtime
    from zinc_rt.model.gguf import read_gguf
    from zinc_rt.perf.history.chain import record_report
    from zinc_rt.perf.machine import describe_machine
    from zinc_rt.perf.native.bandwidth import Bandwidth
    from zinc_rt.perf.native.bench import make_empty_node_result, measure_case, read_clock_mhz
    from zinc_rt.perf.synthetic import open_cached

    check_writable(report=arguments.json)
    chosen, threads = _select_cases(arguments), _choose_threads(arguments)
    knobs, out = options.read_settings_once(), choose_output_stream(arguments)
    bandwidth = Bandwidth()
    peer, problem = _find_peer(arguments)
    report = start_report(Report("perf native", shortcuts=knobs.list_shortcuts()), arguments)
    one, all_ = bandwidth.read_gbs(1), bandwidth.read_gbs(threads)
    report.details = {
        "code": digest_runtime(),
        "settings": asdict(knobs),
        "host": describe_host(),
        "models": {},
        "machine": {**describe_machine(), "clock_mhz": read_clock_mhz()},
        "threads": threads,
        "read_gbs": {"1": one, str(threads): all_},
        "llama_cpp": {"version": peer.version() if peer else "", "problem": problem},
    }
    _show_machine(report, out)
    report.results.append(
        make_empty_node_result(bandwidth.measure_empty_node(threads), threads, os.getloadavg()[0])
    )
    _show(report.results[-1], out)
    report.device = _describe_device(arguments.tier)
    bench = _make_bench(arguments, threads, bandwidth, peer, problem)
    for case in chosen:
        path = open_cached(case.model)
        report.details["models"][case.model] = describe_model(read_gguf(path))
        for result in measure_case(case, path, bench):
            report.results.append(result)
            _show(result, out)
    if peer is not None:
        report.details["llama_cpp"] |= peer.record()
    terminal.show(_format_verdict(report), out=out)
    if arguments.history:
        terminal.show(record_report(arguments.history, report, _collect_speeds), out=out)
    return finish_report(report, arguments)


def _select_cases(arguments: argparse.Namespace) -> list[NativeCase]:
    from zinc_rt.host.errors import UsageError
    from zinc_rt.perf.native.bench import CASES

    if arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}: expected 1 or more")
    names = [name.strip() for name in arguments.models.split(",") if name.strip()]
    known = {case.model: case for case in CASES}
    for name in names:
        if name not in known:
            raise UsageError(f"--models {name}: unknown benchmark model", next=f"one of {', '.join(known)}")
    return [known[name] for name in names] or list(CASES)


def _choose_threads(arguments: argparse.Namespace) -> int:
    from zinc_rt.backends.cpu.threads import choose_default_threads
    from zinc_rt.host.errors import UsageError

    if arguments.threads is not None and arguments.threads < 1:
        raise UsageError(f"--threads {arguments.threads}: expected 1 or more")
    return arguments.threads or choose_default_threads()


def _find_peer(arguments: argparse.Namespace) -> tuple[LlamaCpp | None, str]:
    """Return llama.cpp, or the reason why there is none. A folder specified by the user must contain it."""
    from zinc_rt.cli.options import print_status
    from zinc_rt.perf.native.llama_cpp import NoPeer, build, find

    if arguments.llama == "none":
        return None, "no llama.cpp: --llama none"
    if arguments.llama:
        return find(Path(arguments.llama)), ""
    try:
        return find() or build(print_status), ""
    except NoPeer as error:
        print_status(str(error))
        return None, str(error).partition("\n")[0]


def _make_bench(
    arguments: argparse.Namespace, threads: int, bandwidth: Bandwidth, peer: LlamaCpp | None, problem: str
) -> NativeBench:
    import os

    from zinc_rt.cli.options import print_status
    from zinc_rt.perf.native.bench import NativeBench

    def look() -> tuple[float, float]:
        return bandwidth.read_gbs(threads), os.getloadavg()[0]

    return NativeBench(arguments.tier, threads, arguments.rounds, peer, problem, look, print_status)


def _describe_device(tier: str) -> dict[str, Any]:
    from dataclasses import asdict

    from zinc_rt.engine.devices import choose_tier, open_backend

    backend = open_backend(choose_tier(tier, "cpu"), "canonical-1")
    try:
        return {"tier": tier, **asdict(backend.device)}
    finally:
        backend.close()


def _show_machine(report: Report, out: TextIO) -> None:
    host, read = report.details["machine"], report.details["read_gbs"]
    clock = f"{host['clock_mhz']:.0f} MHz" if host["clock_mhz"] else "clock unknown"
    terminal.show(f"{host['processor']}, {host['cores']} cores, {clock}, load {host['load_average'][0]}", out=out)
    speeds = ", ".join(f"{value:.1f} GB/s on {count}" for count, value in read.items())
    terminal.show(
        f"read bandwidth {speeds} threads; {report.details['llama_cpp']['version'] or 'no llama.cpp'}", out=out
    )


def _show(result: Result, out: TextIO) -> None:
    measure = result.measure
    status = result.status.upper()
    widths = (("status", 6), ("result", 44))
    columns = (Column(""), *(Column("", width=width, key=key) for key, width in widths), Column("", key="measure"))
    terminal.show(Table(columns, [("", status, result.id, _format_line(measure))], headings=False), out=out)
    if result.reason:
        terminal.show(f"          {result.reason}", out=out)


def _format_line(measure: dict[str, Any]) -> str:
    if "us" in measure:
        return f"{measure['us']:.3f} µs on {measure['threads']} threads"
    if "resident_bytes" in measure:
        return (
            f"{measure['resident_bytes'] / 1e9:.2f} GB resident of a file of {measure['file_bytes'] / 1e9:.2f} GB "
            f"and {measure['cache_bytes'] / 1e9:.2f} GB of caches, {measure['major_faults']} major faults"
        )
    if "tokens_per_second" not in measure:
        return ""
    parts = [f"{measure['tokens_per_second']:.1f} tok/s"]
    if "expected" in measure:
        parts.append(
            f"{measure['acceptance']:.0%} of drafts accepted, {measure['ratio']:.2f} of plain decoding "
            f"({measure['ratio_low']:.2f} to {measure['ratio_high']:.2f}), expected {measure['expected']:.2f} "
            f"with {measure['drafts']} drafts"
        )
    elif "ratio" in measure:
        parts.append(
            f"llama.cpp ({measure['setting']}) {measure['their_tokens_per_second']:.1f}, ratio "
            f"{measure['ratio']:.2f} ({measure['ratio_low']:.2f} to {measure['ratio_high']:.2f})"
        )
    if "bandwidth_share" in measure:
        parts.append(f"{measure['bandwidth_share']:.0%} of read bandwidth")
    if "oracle_ratio" in measure:
        parts.append(f"{measure['oracle_ratio']:.1f} of the oracle")
    return "; ".join(parts)


def _format_verdict(report: Report) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(report.counts().items()))
    names = {0: "PASS", 1: "FAIL", 77: "BLOCKED"}
    return f"{names[report.exit_code()]}  {counts}; zinc-rt perf gate --milestone cpu evaluates ratios"


def _collect_speeds(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a report for the history: tokens per second, by result."""
    return {
        result["id"]: float(result["measure"]["tokens_per_second"])
        for result in content["results"]
        if "tokens_per_second" in result["measure"]
    }
