"""`zinc-rt perf predict`: tokens a second before there is hardware, with what is assumed."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt import terminal
from zinc_rt.arguments import add_models
from zinc_rt.commands.output import begin, finish, output_stream

if TYPE_CHECKING:
    from zinc_rt.perf.predict.devices import DeviceTable
    from zinc_rt.perf.predict.roofline import Prediction
    from zinc_rt.perf.predict.token_work import TokenWork
    from zinc_rt.report import Report

HELP = "tok/s of a model on a device, what bounds it, what a change is worth"
EXAMPLES = """\
From the lowered graph alone: the bytes a token reads and writes, dispatches, barriers, and the instructions that
the kernels' inner loops spend on a byte. Nothing runs. What no specification says is assumed, by name and with a
range; both are printed.

examples:
  zinc-rt perf predict --model M.gguf
  zinc-rt perf predict --model M.gguf --device-row "Strix Halo" --position 4095

exit codes: 0, or 2 for a model or a device that is not known.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    parser.add_argument("--device-row", default="R9700", metavar="NAME", help="default R9700; all: every row")
    parser.add_argument("-c", "--ctx", type=int, metavar="N", help="context length (default: as zinc-rt run)")
    parser.add_argument(
        "--position", type=int, metavar="P", help="of the token (default: the last of the context)"
    )


def run(arguments: argparse.Namespace) -> int:
    from zinc_rt.code_version import runtime_version
    from zinc_rt.commands.describe import describe_model
    from zinc_rt.commands.options import read_model
    from zinc_rt.commands.output import readable_size
    from zinc_rt.engine import default_ctx
    from zinc_rt.errors import UsageError
    from zinc_rt.files import check_writable
    from zinc_rt.perf.predict.devices import table
    from zinc_rt.perf.predict.roofline import predict
    from zinc_rt.perf.predict.token_work import work_of
    from zinc_rt.report import Report

    check_writable(report=arguments.json)
    known = table()
    rows = list(known.devices.values()) if arguments.device_row == "all" else [known.device(arguments.device_row)]
    report, out = begin(Report("perf predict"), arguments), output_stream(arguments)
    gguf = read_model(arguments.model)
    ctx = default_ctx(gguf, arguments.ctx)
    position = ctx - 1 if arguments.position is None else arguments.position
    if not 0 <= position < ctx:
        raise UsageError(f"--position {position}: wanted 0 to {ctx - 1}, inside the context")
    work = work_of(gguf, ctx=ctx, position=position)
    report.model, report.ordering, report.ctx = describe_model(gguf), "canonical-1", ctx
    report.details |= {"code": runtime_version(), "work": _work(work)}
    terminal.show(f"{work.model}  {work.architecture}, one token at position {position}", out=out)
    terminal.show(f"  reads {readable_size(work.read_bytes)}, writes {readable_size(work.written_bytes)}", out=out)
    by_class: dict[tuple[str, str], int] = {}
    for row in work.traffic:
        by_class[row.kind, row.dtype] = by_class.get((row.kind, row.dtype), 0) + row.read_bytes
    for (kind, dtype), read in sorted(by_class.items(), key=lambda item: -item[1]):
        terminal.show(f"    {kind:<9}{dtype:<6}{readable_size(read)}", out=out)
    terminal.show(
        f"  {work.dispatches} dispatches, {work.barriers} barriers, {work.packets} packets in {work.ib_dwords} "
        "dwords, written once",
        out=out,
    )
    for device in rows:
        _show(predict(work, device, known), work, known, report, out)
    terminal.show("\nassumed, pessimistic to optimistic:", out=out)
    assumed = [
        ("", each.name, ", ".join(f"{value:g}" for value in each.value), each.why)
        for each in known.assumptions.values()
    ]
    terminal.show(terminal.Table(("", "", "", ""), assumed, headings=False), out=out)
    return finish(report, arguments)


def _show(made: Prediction, work: TokenWork, known: DeviceTable, report: Report, out: TextIO) -> None:
    from zinc_rt.perf.predict.roofline import worth
    from zinc_rt.report import Result

    parts = made.likely
    low, high = (made.cases[case].tokens_per_second for case in ("pessimistic", "optimistic"))
    device = made.device
    terminal.show(
        f"\n{device.name}: {device.memory_gbps:g} GB/s, {device.compute_units} CUs  [{device.source}]", out=out
    )
    terminal.show(
        f"  predicted {parts.tokens_per_second:.1f} tok/s ({low:.1f} to {high:.1f}), bound by {parts.bound}; "
        f"its bytes alone {made.ceiling:.1f}",
        out=out,
    )
    shares = ", ".join(f"{name} {1e6 * value:.0f} µs" for name, value in parts.as_dict().items() if value > 0)
    terminal.show(f"  a token's {1e6 * parts.seconds:.0f} µs: {shares}", out=out)
    for note in made.notes:
        terminal.show(f"  note: {note}", out=out)
    changes = worth(work, device, known)
    for each in changes:
        terminal.show(f"  {each.milestone}  {each.before:.1f} -> {each.after:.1f} tok/s: {each.change}", out=out)
    report.results.append(
        Result(
            f"predict/{device.key}",
            "prediction",
            "pass",
            reason=f"bound by {parts.bound}",
            measure={
                "tokens_per_second": parts.tokens_per_second,
                "range": [low, high],
                "ceiling": made.ceiling,
                "seconds": parts.as_dict(),
                "worth": [asdict(each) for each in changes],
                "notes": list(made.notes),
            },
            limit={"assumed": {name: list(each.value) for name, each in known.assumptions.items()}},
        )
    )


def _work(work: TokenWork) -> dict[str, Any]:
    return {
        "read_bytes": work.read_bytes,
        "written_bytes": work.written_bytes,
        "traffic": [asdict(row) for row in work.traffic],
        "dispatches": work.dispatches,
        "barriers": work.barriers,
        "packets": work.packets,
        "ib_dwords": work.ib_dwords,
        "readback_bytes": work.readback_bytes,
        "logits_bytes": work.logits_bytes,
        "nodes": [asdict(node) for node in work.nodes],
        "kernels": {
            name: {"waves": kernel.waves, "mix": kernel.mix, "vopd_rate": kernel.vopd_rate}
            for name, kernel in work.kernels.items()
        },
    }
