"""Profile a step by node, and the host's share of its time."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt.cli import options
from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import add_models

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.engine.engine import Engine
    from zinc_rt.perf.profile.steps import MeasuredSteps, Profile, ProfileRow

GROUPS = ("op", "node", "kernel", "layer")  # without importing NumPy for --help
DEFAULT_TOP = 24
HELP = "profile a step, node by node"
EXAMPLES = """\
Every dispatch is timed with the tier's clock: the GPU counter that the command processor writes before and after
it (T1, T2), the host's clock around a node (t_cpu), or the CPU's counter (t_cpu_native). Timed dispatches run one
at a time. The table shows such steps; the line above it gives the time of the same steps without timing. A row's
time starts at the end of the previous dispatch; `launch` is the part before the dispatch itself starts. `host` is
the time before the first and after the last dispatch. All rows and `host` add up to the step.

Bytes are the bytes of weights, cache and state (no activations) that a token reads and writes. For a node with
several dispatches they are in the row of its longest dispatch. A simulated device's counter is this machine's
clock: its times show the cost of the simulation, not hardware speed.

examples:
  zinc-rt perf profile --model M.gguf                        a step of one token, by op
  zinc-rt perf profile --model M.gguf --tier t_cpu --by node --top 0
  zinc-rt perf profile --model M.gguf --prefill 128 --by kernel
  zinc-rt perf profile --model M.gguf --tier t1 --device sim --layers 0:4 --chrome step.json

exit codes: 0 done, 1 the clock is unusable (it stops, runs backwards or exceeds the step's time), 2 unusable
input.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    options.add_engine(parser)
    options.add_prefill_ordering(parser, "of --prefill, and of the tokens before a decode step")
    load = parser.add_argument_group("workload")
    load.add_argument(
        "--steps",
        type=int,
        default=8,
        metavar="N",
        help="number of timed steps, which follow as many untimed ones (default 8)",
    )
    load.add_argument(
        "--position", type=int, default=4, metavar="P", help="number of preceding tokens (default 4)"
    )
    load.add_argument(
        "--prefill", type=int, default=0, metavar="N", help="profile the prefill of N tokens instead of decode"
    )
    load.add_argument(
        "--layers", default="all", metavar="0:N", help="profile only the first N layers; noted in the report"
    )
    shown = parser.add_argument_group("output")
    shown.add_argument("--by", choices=GROUPS, default="op", help="group rows by this (default op)")
    shown.add_argument(
        "--top", type=int, default=DEFAULT_TOP, metavar="N", help=f"number of rows; 0: all (default {DEFAULT_TOP})"
    )
    shown.add_argument(
        "--bandwidth",
        metavar="GB/S",
        help="memory bandwidth used to compute shares (default: specified for a card, measured for a CPU; none: "
        "omit shares)",
    )
    shown.add_argument(
        "--chrome", metavar="FILE", help="write a timeline of every timed step for Chrome or Perfetto"
    )


def run(arguments: argparse.Namespace) -> int:
    from zinc_rt.backends.base import read_findings
    from zinc_rt.cli.describe import describe_executed, describe_model, describe_run, fail_for_findings
    from zinc_rt.cli.progress import show_progress
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.devices import explain_non_gpu
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.perf.profile.steps import ProfileWorkload, measure, profile
    from zinc_rt.validate.layers import parse_layers, transform
    from zinc_rt.validate.prepare import count_layers

    check_writable(arguments.chrome, report=arguments.json)
    load = ProfileWorkload(arguments.steps, arguments.position, arguments.prefill)
    _check_bandwidth(arguments.bandwidth)
    knobs, out = options.read_settings_once(), choose_output_stream(arguments)
    gguf = options.read_model(arguments.model)
    layers = parse_layers(arguments.layers, count_layers(gguf))
    if layers.first:
        raise UsageError(
            f"--layers {arguments.layers}: a profile must begin at layer 0", next=f"--layers 0:{layers.last}"
        )
    report = start_report(Report("perf profile"), arguments)
    with options.open_engine(gguf, arguments, knobs, transform=transform(layers)) as engine:
        load.check(engine.limits.ctx)
        with show_progress(2 * load.steps + 2, "profile", "step") as advance:
            measured = measure(engine, load, advance=advance)
        describe_run(report, engine)
        describe_executed(report, engine)
        findings = read_findings(engine.backend)
        limit_gbs, limit_from = _choose_bandwidth(arguments.bandwidth, engine, knobs)
        simulated, caveat = engine.backend.device.simulated, explain_non_gpu(engine.backend.device)
    if caveat:
        report.shortcuts.append(caveat)
    if not layers.whole:
        report.shortcuts.append(f"--layers {arguments.layers}: {layers.last} of {layers.total} layers")
    profiled = profile(measured, arguments.by)
    report.model = describe_model(gguf)
    report.results.append(_make_result(measured, profiled, report, limit_gbs))
    report.details |= {"workload": asdict(load), "by": arguments.by, "layers": [layers.first, layers.last]}
    _show(arguments, measured, profiled, report, (limit_gbs, limit_from), out)
    if arguments.chrome:
        from zinc_rt.host.chrome_trace import write_chrome
        from zinc_rt.perf.profile.steps import build_timeline

        where = f"{report.device['tier']}{', simulated' if simulated else ''} on {report.device['name']}"
        write_chrome(build_timeline(measured, where), arguments.chrome)
        terminal.show(
            f"wrote     {arguments.chrome}; open it in https://ui.perfetto.dev or chrome://tracing", out=out
        )
    fail_for_findings(report, findings, arguments.model)
    return finish_report(report, arguments)


def _check_bandwidth(given: str | None) -> None:
    from zinc_rt.host.errors import UsageError

    if given in (None, "none"):
        return
    try:
        right = 0 < float(str(given)) < float("inf")
    except ValueError:
        right = False
    if not right:
        raise UsageError(f"--bandwidth {given}: expected GB/s, more than 0, or none")


def _choose_bandwidth(given: str | None, engine: Engine, knobs: Any) -> tuple[float, str]:
    """Return the bandwidth in GB/s used for shares (0 for none) and its origin. A simulated device has
    none.
    """
    from zinc_rt.backends.base import device_kind
    from zinc_rt.host.errors import ZincError

    device = engine.backend.device
    if given == "none":
        return 0.0, "none asked for"
    if device.simulated:
        return 0.0, "none: a simulated clock has no bandwidth"
    if given is not None:
        return float(given), "as given"
    if not device_kind(engine.backend).uses_host_memory:
        if device.memory_bytes_per_second:
            return device.memory_bytes_per_second / 1e9, "as the driver specifies it"
        from zinc_rt.perf.predict.devices import load_table

        row = next((r for key, r in load_table().devices.items() if key.lower() in device.name.lower()), None)
        return (
            (row.memory_gbps, f"of the row {row.key} of zinc_rt/host/devices.yaml")
            if row
            else (0.0, "none: not known")
        )
    from zinc_rt.backends.cpu.threads import choose_default_threads
    from zinc_rt.perf.native.bandwidth import Bandwidth

    threads = choose_default_threads()
    try:
        return Bandwidth(knobs.cc).read_gbs(threads), f"measured here, {threads} threads reading"
    except ZincError as error:
        return 0.0, f"none: {str(error).splitlines()[0]}"


def _make_result(measured: MeasuredSteps, profiled: Profile, report: Report, limit_gbs: float) -> Result:
    from zinc_rt.cli.report import Result
    from zinc_rt.perf.profile.steps import WITHIN, profile

    first = measured.steps[0].times
    steps = profiled.steps
    item = profiled if report.details.get("by") == "node" else profile(measured, "node")
    measure = {
        "clock": first.clock,
        "simulated_clock": first.simulated,
        "dispatches": len(first.dispatches),
        "step_seconds": profiled.step_ns / steps / 1e9,
        "steps_seconds": [step.nanoseconds / 1e9 for step in measured.steps],
        "without_readings_seconds": [ns / 1e9 for ns in measured.plain_ns],
        "nodes_seconds": profiled.nodes_ns / steps / 1e9,
        "host_seconds": profiled.host_ns / steps / 1e9,
        "nodes_share": profiled.nodes_share,
        "bandwidth_gbs": limit_gbs,
        "rows": [_as_dict(row, profiled, limit_gbs) for row in profiled.rows],
        "nodes": [_as_dict(row, item, limit_gbs) for row in item.rows],
    }
    return Result(
        "profile",
        "profile",
        "fail" if profiled.wrong else "pass",
        tier=str(report.device["tier"]),
        reason="; ".join(profiled.wrong),
        measure=measure,
        limit={"nodes_share": 1 - WITHIN},
        advice="zinc-rt pm4-test P08 and P21 look at the counter" if profiled.wrong else "",
    )


def _as_dict(row: ProfileRow, profiled: Profile, limit_gbs: float) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": row.name,
        "kernels": {kernel: calls / profiled.steps for kernel, calls in row.kernels.items()},
        "calls": row.calls / profiled.steps,
        "seconds": row.nanoseconds / profiled.steps / 1e9,
        "launch_seconds": row.launch_ns / profiled.steps / 1e9,
        "share": row.nanoseconds / profiled.step_ns,
    }
    if row.bytes is not None:
        body["bytes"] = row.bytes
        if limit_gbs:
            body["gbs"] = _compute_gbs(row, profiled)
            body["bandwidth_share"] = _compute_gbs(row, profiled) / limit_gbs
    return body


def _compute_gbs(row: ProfileRow, profiled: Profile) -> float:
    return (row.bytes or 0) * profiled.steps / row.nanoseconds if row.nanoseconds else 0.0


def _show(
    arguments: argparse.Namespace,
    measured: MeasuredSteps,
    profiled: Profile,
    report: Report,
    limit: tuple[float, str],
    out: TextIO,
) -> None:
    from pathlib import Path

    from zinc_rt.perf.profile.steps import WITHIN

    device, first = report.device, measured.steps[0].times
    simulated = ", simulated" if device["simulated"] else ""
    terminal.show(
        f"{Path(report.model['path']).name}  {report.model['architecture']} on {device['tier']}{simulated}, "
        f"{device['name']}, {report.ordering}, ctx {report.ctx}",
        out=out,
    )
    what = (
        f"a prompt of {measured.tokens} tokens" if measured.tokens > 1 else f"one token near {measured.position}"
    )
    terminal.show(f"  {what}, mean of {profiled.steps} steps; clock: {first.clock}", out=out)
    timed, plain = profiled.step_ns / profiled.steps / 1e6, statistics.fmean(measured.plain_ns) / 1e6
    terminal.show(
        f"  a step {timed:.3f} ms with every dispatch alone and timed, {plain:.3f} ms without "
        f"({timed / plain:.2f} times)",
        out=out,
    )
    gbs, reason = limit
    terminal.show(f"  bandwidth: {f'{gbs:.1f} GB/s, {reason}' if gbs else reason}", out=out)
    _show_table(arguments, profiled, gbs, out)
    for shortcut in report.shortcuts:
        terminal.show(f"shortcut  {shortcut}", out=out)
    if profiled.wrong:
        for line in profiled.wrong:
            terminal.show(f"FAIL      {line}", out=out)
        return
    clock = " (SIMULATED clock)" if first.simulated else ""
    terminal.show(
        f"nodes     add up to {profiled.nodes_share:.1%} of the step{clock}, "
        f"{1 - profiled.nodes_share:.1%} is the host's"
        + ("" if profiled.nodes_share >= 1 - WITHIN else ": so short a step is largely the host's"),
        out=out,
    )


def _show_table(arguments: argparse.Namespace, profiled: Profile, limit_gbs: float, out: TextIO) -> None:
    top = arguments.top if arguments.top > 0 else len(profiled.rows)
    shown, rest = profiled.rows[:top], profiled.rows[top:]
    names = ("calls", "ms", "share", "launch ms", "bytes", *(("GB/s", "of it") if limit_gbs else ()))
    columns = [terminal.Column(arguments.by), terminal.Column("kernel"), *map(terminal.number_column, names)]
    rows = [_format_cells(row.name, _format_kernel(row), row, profiled, limit_gbs) for row in shown]
    if rest:
        rows.append(_format_cells(f"{len(rest)} more", "", _sum(rest), profiled, limit_gbs))
    rows.append(_format_cells("nodes", "", _sum(profiled.rows), profiled, limit_gbs))
    for name, nanoseconds in (("host", profiled.host_ns), ("step", profiled.step_ns)):
        share, spent = f"{nanoseconds / profiled.step_ns:.1%}", f"{nanoseconds / profiled.steps / 1e6:.3f}"
        rows.append([name, "", "", spent, share, *[""] * (len(columns) - 5)])
    terminal.show_table(columns, rows, out)


def _format_cells(name: str, kernel: str, row: ProfileRow, profiled: Profile, limit_gbs: float) -> list[str]:
    size = "-" if row.bytes is None else f"{row.bytes:,}"
    milliseconds, launch = (item / profiled.steps / 1e6 for item in (row.nanoseconds, row.launch_ns))
    shares = ["", ""]
    if limit_gbs and row.bytes:
        gbs = _compute_gbs(row, profiled)
        shares = [f"{gbs:.2f}", f"{gbs / limit_gbs:.1%}"]
    return [
        *(name, kernel, f"{row.calls / profiled.steps:.0f}", f"{milliseconds:.3f}"),
        *(f"{row.nanoseconds / profiled.step_ns:.1%}", f"{launch:.3f}", size),
        *(shares if limit_gbs else []),
    ]


def _format_kernel(row: ProfileRow) -> str:
    """Return the kernel called most, and the number of others."""
    maximum = max(row.kernels, key=lambda name: row.kernels[name])
    others = len(row.kernels) - 1
    return f"{maximum[:13]} +{others}" if others else maximum[:18]


def _sum(rows: Any) -> ProfileRow:
    from zinc_rt.perf.profile.steps import ProfileRow

    known = [row.bytes for row in rows]
    return ProfileRow(
        "",
        calls=sum(row.calls for row in rows),
        nanoseconds=sum(row.nanoseconds for row in rows),
        launch_ns=sum(row.launch_ns for row in rows),
        bytes=None if None in known else sum(known),
    )
