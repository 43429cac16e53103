"""Measure decode, prefill and first-token speed of a model, with the evidence that a gate requires."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt.backends import registry
from zinc_rt.cli import options
from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import add_models

if TYPE_CHECKING:
    from zinc_rt.cli.describe import DrawCounts
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.engine import Engine
    from zinc_rt.perf.machine import Sampler

HELP = "measure decode, prefill and first token; --vs compares another program"
EXAMPLES = """\
Measured runs follow warm-up runs. The table gives medians and the spread between runs, the report the seconds of
every token. --vs alternates with runs of another program and gives the ratio with its 95 % interval. --history
also records the report, which zinc-rt perf gate requires.

examples:
  zinc-rt perf bench --model M.gguf
  zinc-rt perf bench --model M.gguf --prompt-tokens 512 --prefill-ordering wmma-f16
  zinc-rt perf bench --model M.gguf --tier t2 --json runs/t2.json --history runs/history.jsonl
  zinc-rt perf bench --model M.gguf --tier t_cpu --slots 1,16
  zinc-rt perf bench --model M.gguf --tier t2 --slots 16 --requests
  zinc-rt perf bench --model M.gguf --vs 'llama-bench -m M.gguf -p 0 -n 128 -r 1 -o json'
  zinc-rt perf bench --model M.gguf --device sim --tier t1 --prompt-tokens 8 --tokens 8 --runs 3

exit codes: 0 measured, 1 the simulated device reported a finding, 2 unusable input. zinc-rt perf gate decides
whether a speed is sufficient.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    options.add_engine(parser)
    options.add_prefill_ordering(parser, "decoded tokens keep --ordering")
    load = parser.add_argument_group("workload")
    load.add_argument(
        "-p", "--prompt-tokens", type=int, default=128, metavar="N", help="prompt tokens (default 128)"
    )
    load.add_argument(
        "-n", "--tokens", type=int, default=128, metavar="N", help="tokens generated in each run (default 128)"
    )
    load.add_argument(
        "--slots",
        type=_parse_counts,
        default=(1,),
        metavar="N,M",
        help="number of sequences that decode together (default 1); with several numbers, also print the ratios",
    )
    load.add_argument(
        "--requests",
        action="store_true",
        help="also measure requests through the scheduler: time to first token (cached prompt, idle engine) and "
        "fairness",
    )
    load.add_argument("--warmup", type=int, default=1, metavar="N", help="warm-up runs (default 1)")
    load.add_argument("--runs", type=int, default=5, metavar="N", help="measured runs (default 5)")
    peer = parser.add_argument_group("comparison with another program")
    peer.add_argument(
        "--vs", metavar="CMD", help="command line of the other program; the decode speed is parsed from its output"
    )
    peer.add_argument(
        "--vs-figure",
        metavar="REGEX",
        help="regular expression for the speed in the output; the first group is tok/s",
    )
    peer.add_argument(
        "--vs-timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="time limit of one run in seconds (default 600)",
    )
    parser.add_argument("--history", type=Path, metavar="F.jsonl", help="append the report to this history")


def _parse_counts(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isdecimal() and int(word) for word in words) or len(set(words)) < len(words):
        raise argparse.ArgumentTypeError(f"{text!r} : expected a number of slots, or several like 1,16")
    return tuple(map(int, words))


def run(arguments: argparse.Namespace) -> int:
    from zinc_rt.backends.base import read_findings
    from zinc_rt.backends.spec import DeviceKind
    from zinc_rt.cli.describe import describe_executed, describe_model, describe_run, fail_for_findings
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.devices import explain_non_gpu
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.perf.bench.requests import make_request_results, measure_requests
    from zinc_rt.perf.bench.runs import BenchWorkload, count_nodes
    from zinc_rt.perf.bench.versus import make_runner
    from zinc_rt.perf.history.chain import collect_figures, record_report
    from zinc_rt.perf.machine import Sampler, describe_machine

    check_writable(report=arguments.json)
    if arguments.vs_figure and not arguments.vs:
        raise UsageError("--vs-figure requires --vs")
    theirs = make_runner(arguments.vs, arguments.vs_figure, arguments.vs_timeout) if arguments.vs else None
    several = len(arguments.slots) > 1
    if several and arguments.runs < 2:
        raise UsageError("several numbers of slots need --runs 2 or more, to measure the spread of the ratio")
    if several and (theirs is not None or arguments.history or arguments.requests):
        text = f"--slots {arguments.slots[0]}"
        raise UsageError("--vs, --history and --requests require a single number of slots", next=text)
    lengths = (arguments.prompt_tokens, arguments.tokens)
    loads = [BenchWorkload(*lengths, slots, arguments.warmup, arguments.runs) for slots in arguments.slots]
    load = loads[0]
    if theirs is not None and load.runs < 2:
        raise UsageError("--vs needs --runs 2 or more, to measure the spread of the ratio")
    knobs, out = options.read_settings_once(), choose_output_stream(arguments)
    gguf = options.read_model(arguments.model)
    report = start_report(Report("perf bench"), arguments)
    with options.open_engine(gguf, arguments, knobs, slots=max(arguments.slots)) as engine:
        load.check(engine.limits.ctx)
        describe_run(report, engine)
        device = engine.backend.device
        caveat = explain_non_gpu(device)
        if caveat:
            report.shortcuts.append(caveat)
        runs_on_gpu = not caveat and engine.backend.spec.kind is not DeviceKind.HOST
        sampler = Sampler(render_path=device.render_path if runs_on_gpu else None)
        report.details |= {
            "settings": asdict(knobs),
            "workload": {
                **asdict(load),
                "slots": list(arguments.slots) if several else load.slots,
            },
            "machine": describe_machine(),
        }
        _measure(engine, report, sampler, theirs, loads, arguments.vs)
        report.details["workload"]["nodes"] = count_nodes(engine)
        if arguments.requests:
            timed = measure_requests(engine, load, sampler)
            report.results += make_request_results(timed, load, engine.backend.spec.tier)
        describe_executed(report, engine, _draw_counts(report))
        report.details["samples"] = sampler.samples
        findings = read_findings(engine.backend)
        report.details["findings"] = [finding.text for finding in findings]
    report.model = describe_model(gguf)
    report.details["predicted"] = _predict_speed(report, arguments.model)
    _show(report, out)
    fail_for_findings(report, findings, arguments.model)
    if arguments.history:
        terminal.show(record_report(arguments.history, report, collect_figures), out=out)
    return finish_report(report, arguments)


def _predict_speed(report: Report, model: str) -> dict[str, Any]:
    """Predict the speed for the card that ran, else for an R9700, to compare with the measurement. Return the
    reason if there is no prediction.
    """
    from zinc_rt.host.errors import ZincError
    from zinc_rt.model.gguf import read_gguf
    from zinc_rt.perf.predict.devices import load_table
    from zinc_rt.perf.predict.roofline import predict
    from zinc_rt.perf.predict.token_work import compute_work

    known, load = load_table(), report.details["workload"]
    name = str(report.device["name"])
    row = next((item for key, item in known.devices.items() if key.lower() in name.lower()), known.device("R9700"))
    position = min(report.ctx, load["prompt_tokens"] + load["tokens"]) - 1
    try:
        prediction = predict(compute_work(read_gguf(model), ctx=report.ctx, position=position), row, known)
    except ZincError as error:
        return {"reason": str(error).partition("\n")[0]}
    speeds = {case: prediction.case_speed(case) for case in prediction.cases}
    return {
        "device": row.name,
        "bound": prediction.likely.bound,
        "ceiling": prediction.ceiling,
        "tokens_per_second": speeds,
    }


def _measure(engine: Engine, report: Report, sampler: Sampler, theirs: Any, loads: Any, command: str) -> None:
    from zinc_rt.perf.bench.runs import alternate_runs, compare_with_peer, make_results, measure_runs
    from zinc_rt.perf.bench.scaling import make_scaling_results, run_in_turns

    tier, load = engine.backend.spec.tier, loads[0]
    if len(loads) > 1:
        report.results += make_scaling_results(run_in_turns(engine, loads, sampler), loads, tier, sampler)
        return
    if theirs is None:
        *_, timed = measure_runs(engine, load, sampler)
        report.results += make_results(timed, load, tier, sampler)
        return
    timed, pairs = alternate_runs(engine, load, sampler, theirs)
    report.results += [
        *make_results(timed, load, tier, sampler),
        compare_with_peer(pairs, command, tier, theirs.record()),
    ]


def _draw_counts(report: Report) -> DrawCounts:
    """Return the counts of drawn tokens. The host selects the most likely token from a prompt's last logits; the
    device samples every other token.
    """
    from zinc_rt.cli.describe import DrawCounts

    measures = [result.measure for result in report.results if result.id in ("decode", "aggregate")]
    device = sum(measure["slots"] * sum(len(run) for run in measure["runs"]) for measure in measures)
    return DrawCounts(device=device, host=sum(measure["slots"] * len(measure["runs"]) for measure in measures))


def _show(report: Report, out: TextIO) -> None:
    device, load, name = report.device, report.details["workload"], Path(report.model["path"]).name
    terminal.show(
        f"{name}  {report.model['architecture']} on {device['tier']}, {device['name']}, "
        f"{report.ordering}, ctx {report.ctx}",
        out=out,
    )
    terminal.show(
        f"  prompt {load['prompt_tokens']}, {load['tokens']} tokens, {_format_slots(load['slots'])} slots; "
        f"{load['warmup']} runs to warm up, {load['runs']} measured",
        out=out,
    )
    host = report.details["machine"]
    terminal.show(
        f"  {host['processor']}, {host['cores']} cores, load {host['load_average'][0]}, "
        f"governor {host.get('governor', 'unknown')}, {len(report.details['samples'])} sensor samples",
        out=out,
    )
    for result in report.results:
        terminal.show(f"  {result.id:<15}{_format_line(result.id, result.measure)}", out=out)
    predicted = report.details["predicted"]
    if "reason" not in predicted and load["slots"] == 1 and device["tier"] != registry.ORACLE:
        likely, low, high = (
            predicted["tokens_per_second"][case] for case in ("likely", "pessimistic", "optimistic")
        )
        terminal.show(
            f"  predicted {likely:.1f} tok/s of decode on a {predicted['device']} ({low:.1f} to {high:.1f}), "
            f"bound by {predicted['bound']}",
            out=out,
        )
    for shortcut in report.shortcuts:
        terminal.show(f"shortcut  {shortcut}", out=out)


REQUEST_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "ttft_warm": lambda m: f"{m['seconds']:.4f} s, {min(m['cached'])} of {m['prompt_tokens']} tokens cached",
    "idle_to_stream": lambda m: f"{1e6 * m['seconds']:.0f} µs more than a later token",
    "fairness": lambda m: f"p99 gap {m['p99_over_p50']:.2f} times its p50, {m['others']} batch requests",
    "endurance": lambda m: f"{m['tokens']:g} tokens a host step",
}


def _format_slots(counts: int | list[int]) -> str:
    return str(counts) if isinstance(counts, int) else " and ".join(map(str, counts))


def _format_line(name: str, measure: dict[str, Any]) -> str:
    if name.startswith("scaling"):
        low, high, over = measure["ratio_low"], measure["ratio_high"], measure["over"]
        times = f"{measure['ratio']:.2f} times the tokens a second of {over} slot{'s' * (over > 1)}"
        return f"{times} at {measure['slots']} slots, {low:.2f} to {high:.2f}"
    if name == "against":
        low, high = measure["ratio_low"], measure["ratio_high"]
        return f"{measure['ratio']:.3f} of the other's speed, {low:.3f} to {high:.3f}"
    if name == "power":
        return f"{measure['watts']:.0f} W"
    if name in REQUEST_LINES:
        return REQUEST_LINES[name](measure)
    spread = f"spread {measure['spread']:.1%}"
    if name == "ttft":
        return f"{measure['seconds']:.4f} s, {spread}"
    tail = ""
    if "p99_seconds" in measure:
        tail = ", a token " + ", ".join(
            f"p{share} {1e3 * measure[f'p{share}_seconds']:.2f} ms" for share in (50, 90, 99)
        )
    return f"{measure['tokens_per_second']:.2f} tok/s, {spread}{tail}"
