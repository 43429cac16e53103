"""Predict tokens per second without hardware, and the loss of each dispatch."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, get_args

from zinc_rt.backends.registry import AMD_ORDERINGS
from zinc_rt.cli.options import add_kv_type, add_prefill_ordering
from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import add_models, parse_context_length
from zinc_rt.host.settings import Experts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zinc_rt.cli.report import Report
    from zinc_rt.host.devices import DeviceRow
    from zinc_rt.model.gguf import GGUFFile
    from zinc_rt.perf.predict.devices import DeviceTable
    from zinc_rt.perf.predict.roofline import Prediction
    from zinc_rt.perf.predict.speculation import SpeculationGain
    from zinc_rt.perf.predict.tables import BeforeAfter
    from zinc_rt.perf.predict.token_work import TokenWork

STEP_TOKENS = 512  # of a prompt, one after another where it has more
MOST_SLOTS = 64
ASSUMED = (terminal.Column(""), *(terminal.Column("", key=name) for name in ("assumption", "values", "why")))
HELP = "predict tok/s of a model on a device and its bottleneck"
EXAMPLES = """\
The prediction uses only the lowered graph and the kernels' code: bytes, dispatches, barriers, and the
instructions that waves execute. Nothing runs. Values without a specification are named assumptions with a range,
which are printed. No speed exceeds the limits by bytes and by operations. Dispatches are listed by the time they
lose against the specified bandwidth, each with its bottleneck. For several models one table shows dispatches,
barriers and bytes, without and with fused nodes and merged dispatches. --backtest compares predictions for
llama.cpp with rows of llama-bench (CSV: chip, model, size, params, backend, test, tps_median).

examples:
  zinc-rt perf predict --model M.gguf
  zinc-rt perf predict --model M.gguf --prompt-tokens 512 --dispatches 20
  zinc-rt perf predict A.gguf B.gguf C.gguf
  zinc-rt perf predict --model M.gguf --device-row "Strix Halo" --position 4095
  zinc-rt perf predict --model M.gguf --slots 16
  zinc-rt perf predict --model M.gguf --kv-type q8_0
  zinc-rt perf predict --model M.gguf --speculate 0.7
  zinc-rt perf predict --backtest ROWS.csv

exit codes: 0 predicted, 2 an unknown model or device.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_models(parser, required=False, several=True)
    parser.add_argument(
        "--device-row",
        default="R9700",
        metavar="NAME",
        help="device (default R9700); all: every device of the table",
    )
    parser.add_argument(
        "-c",
        "--ctx",
        type=parse_context_length,
        metavar="N",
        help="context length; 0: the trained length (default: same as zinc-rt run)",
    )
    parser.add_argument(
        "--position", type=int, metavar="P", help="position of the token (default: the last of the context)"
    )
    parser.add_argument(
        "--prompt-tokens",
        type=int,
        default=1,
        metavar="N",
        help="predict the prefill of N prompt tokens instead of decode",
    )
    parser.add_argument(
        "--slots",
        type=int,
        default=1,
        metavar="N",
        help="predict a step that decodes one token for each of N sequences",
    )
    parser.add_argument(
        "--speculate",
        metavar="P[:K]",
        help="also predict speculation: drafts accepted with probability P, K of them (default: the best)",
    )
    parser.add_argument(
        "--backtest",
        metavar="ROWS.csv",
        help="compare predictions for llama.cpp with these llama-bench rows; takes no model file",
    )
    parser.add_argument(
        "--refit",
        action="store_true",
        help="with --backtest: fit the constants on the rows, and predict each model from the others (minutes)",
    )
    parser.add_argument(
        "--ordering",
        choices=AMD_ORDERINGS,
        default=AMD_ORDERINGS[0],
        help=f"order of arithmetic (default {AMD_ORDERINGS[0]})",
    )
    add_prefill_ordering(parser, "predict --prompt-tokens with it")
    add_kv_type(parser)
    parser.add_argument(
        "--experts",
        choices=get_args(Experts),
        default="auto",
        help="placement of experts, like ZINC_RT_EXPERTS (default auto: in host memory if VRAM is full)",
    )
    parser.add_argument(
        "--dispatches",
        type=int,
        default=10,
        metavar="N",
        help="number of rows for the dispatches that lose the most time (default 10; 0: none)",
    )


def run(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    if arguments.backtest:
        from zinc_rt.perf.predict.backtest_report import make_backtest_report

        return finish_report(make_backtest_report(arguments), arguments)
    return finish_report(predict_models(arguments), arguments)


def predict_models(arguments: argparse.Namespace) -> Report:
    """Predict the speed of the models on the devices that the options name, and show it.

    Raises UsageError for wrong options, InputError for an unknown model or device.
    """
    from zinc_rt.cli.describe import describe_model
    from zinc_rt.cli.options import read_model
    from zinc_rt.cli.report import Report
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.version import digest_runtime
    from zinc_rt.perf.predict.devices import load_table
    from zinc_rt.perf.predict.roofline import predict
    from zinc_rt.perf.predict.speculation import parse_acceptance
    from zinc_rt.perf.predict.token_work import choose_counted_arch

    if not arguments.models:
        raise UsageError("no model", next="name a GGUF file, or --backtest ROWS.csv")
    known = load_table()
    rows = list(known.devices.values()) if arguments.device_row == "all" else [known.device(arguments.device_row)]
    if arguments.dispatches < 0:
        raise UsageError(f"--dispatches {arguments.dispatches}: expected 0 or more rows")
    if not 1 <= arguments.slots <= MOST_SLOTS:
        raise UsageError(f"--slots {arguments.slots}: expected 1 to {MOST_SLOTS}")
    if arguments.slots > 1 and arguments.prompt_tokens > 1:
        raise UsageError("--slots and --prompt-tokens cannot be combined: predict decode or a prompt")
    if arguments.prefill_ordering and arguments.prompt_tokens == 1:
        raise UsageError(f"--prefill-ordering {arguments.prefill_ordering} needs --prompt-tokens N, 2 or more")
    if arguments.speculate and (len(arguments.models) > 1 or arguments.slots + arguments.prompt_tokens > 2):
        raise UsageError("--speculate accepts one model, without --slots and --prompt-tokens")
    acceptance = parse_acceptance(arguments.speculate) if arguments.speculate else None
    report, out = start_report(Report("perf predict"), arguments), choose_output_stream(arguments)
    report.details |= {"code": digest_runtime(), "kv_type": arguments.kv_type}
    report.ordering = arguments.ordering
    if arguments.prefill_ordering:
        report.details["prefill_ordering"] = arguments.prefill_ordering
    if len(arguments.models) > 1:
        _compare(arguments, rows, known, report, out)
    else:
        gguf = read_model(arguments.model)
        works = {arch: _compute_works(gguf, arguments, arch) for arch in _list_counted(rows)}
        work, plain = next(iter(works.values()))
        report.model, report.ctx = describe_model(gguf), _choose_position(gguf, arguments)[0]
        report.details |= {"work": _describe_work(work)}
        _show_step(work, plain, out)
        for device in rows:
            work, plain = works[choose_counted_arch(device.arch)]
            _show(predict(work, device, known), work, plain, known, report, out, arguments.dispatches)
            _show_memory(work, device, known, report, out, arguments.experts)
        if acceptance is not None:
            _show_speculation(gguf, arguments, acceptance, rows, known, report, out)
    terminal.show("\nassumed, pessimistic to optimistic:", out=out)
    assumed = [
        ("", assumption.name, ", ".join(f"{value:g}" for value in assumption.value), assumption.why)
        for assumption in known.assumptions.values()
    ]
    terminal.show(terminal.Table(ASSUMED, assumed, headings=False), out=out)
    return report


def _choose_position(gguf: GGUFFile, arguments: argparse.Namespace) -> tuple[int, int]:
    """Return the context and the position of the step's last token. Raise UsageError if it does not fit."""
    from zinc_rt.engine.engine import choose_default_ctx
    from zinc_rt.host.errors import UsageError

    ctx, tokens = choose_default_ctx(gguf, arguments.ctx), arguments.prompt_tokens
    if not 1 <= tokens <= min(ctx, STEP_TOKENS):
        raise UsageError(
            f"--prompt-tokens {tokens}: expected 1 to {min(ctx, STEP_TOKENS)} tokens, the maximum of one step"
        )
    position = arguments.position
    if position is None:
        position = ctx - 1 if tokens == 1 else tokens - 1
    if not tokens - 1 <= position < ctx:
        raise UsageError(f"--position {position}: expected {tokens - 1} to {ctx - 1} (within the context)")
    return ctx, position


def _list_counted(rows: Iterable[DeviceRow]) -> list[str]:
    """Return the chips whose kernels are counted for the devices."""
    from zinc_rt.perf.predict.token_work import choose_counted_arch

    return list(dict.fromkeys(choose_counted_arch(row.arch) for row in rows))


def _compute_works(gguf: GGUFFile, arguments: argparse.Namespace, arch: str) -> tuple[TokenWork, TokenWork]:
    """Return the work of the step as executed, and the work without fused nodes and merged dispatches."""
    from zinc_rt.ir.passes.matrix_cores import use_matrix_cores
    from zinc_rt.perf.predict.token_work import compute_work

    ctx, position = _choose_position(gguf, arguments)
    prefill = arguments.prefill_ordering
    run, plain = (
        compute_work(
            gguf,
            ctx=ctx,
            position=position,
            tokens=arguments.prompt_tokens,
            sequences=arguments.slots,
            plain=plain,
            ordering=arguments.ordering,
            kv_type=arguments.kv_type,
            transform=partial(use_matrix_cores, ordering=prefill) if prefill else None,
            arch=arch,
        )
        for plain in (False, True)
    )
    return run, plain


def _compare(
    arguments: argparse.Namespace, rows: list[DeviceRow], known: DeviceTable, report: Report, out: TextIO
) -> None:
    """Print one row per model: the savings by fusing and merging."""
    from zinc_rt.cli.describe import describe_model
    from zinc_rt.cli.options import read_model
    from zinc_rt.cli.report import Result
    from zinc_rt.host.errors import UsageError
    from zinc_rt.perf.predict.tables import make_models_table

    if len(rows) > 1:
        raise UsageError("--device-row all accepts only one model", next="name one device for several models")
    (device,) = rows
    shown = []
    models = []
    for model in arguments.models:
        gguf = read_model(model)
        work, plain = _compute_works(gguf, arguments, *_list_counted(rows))
        saved = _list_savings(work, plain, device, known)
        shown.append((work.model, saved))
        models.append(describe_model(gguf))
        measure = {item.name: {"plain": item.plain, "as_run": item.as_run} for item in saved}
        report.results.append(Result(f"compare/{work.model}", "prediction", "pass", measure=measure))
    report.model = {"models": models}
    report.details |= {"device_row": device.key, "tokens": arguments.prompt_tokens}
    what = "a token" if arguments.prompt_tokens == 1 else f"a prompt of {arguments.prompt_tokens}"
    terminal.show(f"{what} on {device.name}: plain -> as run (fused nodes, merged dispatches)\n", out=out)
    terminal.show(make_models_table(shown), out=out)


def _list_savings(work: TokenWork, plain: TokenWork, device: DeviceRow, known: DeviceTable) -> list[BeforeAfter]:
    from zinc_rt.perf.predict.roofline import predict
    from zinc_rt.perf.predict.tables import BeforeAfter

    speeds = [predict(item, device, known).case_speed("likely") for item in (plain, work)]
    return [
        BeforeAfter("dispatches", plain.dispatches, work.dispatches),
        BeforeAfter("barriers", plain.barriers, work.barriers),
        BeforeAfter("megabytes", plain.moved_bytes / 1e6, work.moved_bytes / 1e6),
        BeforeAfter("tokens_per_second", *speeds),
    ]


def _show_step(work: TokenWork, plain: TokenWork, out: TextIO) -> None:
    """Print the device-independent part."""
    from zinc_rt.cli.output import format_size

    what = "one token" if work.tokens == 1 else f"{work.tokens} tokens of a prompt, the last"
    if work.sequences > 1:
        what = f"one token of each of {work.sequences} sequences,"
    terminal.show(f"{work.model}  {work.architecture}, {what} at position {work.position}", out=out)
    terminal.show(f"  reads {format_size(work.read_bytes)}, writes {format_size(work.written_bytes)}", out=out)
    by_class: dict[tuple[str, str], int] = {}
    for row in work.traffic:
        by_class[row.kind, row.dtype] = by_class.get((row.kind, row.dtype), 0) + row.read_bytes
    for (kind, dtype), read in sorted(by_class.items(), key=lambda item: -item[1]):
        terminal.show(f"    {kind:<9}{dtype:<6}{format_size(read)}", out=out)
    for item in work.expanded:
        terminal.show(f"  {item}", out=out)
    terminal.show(
        f"  {work.dispatches} dispatches, {work.barriers} barriers, {work.packets} packets in {work.ib_dwords} "
        f"dwords, written once; plain {plain.dispatches} and {plain.barriers}, {format_size(plain.moved_bytes)}",
        out=out,
    )


def _show(
    prediction: Prediction,
    work: TokenWork,
    plain: TokenWork,
    known: DeviceTable,
    report: Report,
    out: TextIO,
    maximum: int,
) -> None:
    from zinc_rt.cli.report import Result
    from zinc_rt.perf.predict.ceilings import compute_ceiling, group_by_time_lost
    from zinc_rt.perf.predict.devices import CASES
    from zinc_rt.perf.predict.roofline import value_changes
    from zinc_rt.perf.predict.tables import make_lost_measure, make_lost_table

    parts, device, bounds = prediction.likely, prediction.device, prediction.bounds
    low, speed, high = (prediction.case_speed(case) for case in CASES)
    terminal.show(
        f"\n{device.name}: {device.memory_gbps:g} GB/s, {device.compute_units} CUs  [{device.source}]", out=out
    )
    terminal.show(
        f"  predicted {speed:.1f} tok/s ({low:.1f} to {high:.1f}), bound by {parts.bound}; limits: "
        f"{prediction.ceiling:.1f} by bytes, {prediction.flops_ceiling:.0f} by operations",
        out=out,
    )
    shares = ", ".join(f"{name} {1e6 * value:.0f} µs" for name, value in parts.as_dict().items() if value > 0)
    terminal.show(
        f"  {'a token' if work.tokens == 1 else 'the step'}'s {1e6 * parts.seconds:.0f} µs: {shares}", out=out
    )
    for note in prediction.notes:
        terminal.show(f"  note: {note}", out=out)
    changes = value_changes(work, device, known) if work.tokens == 1 else []
    for change in changes:
        terminal.show(
            f"  {change.milestone}  {change.before:.1f} -> {change.after:.1f} tok/s: {change.change}", out=out
        )
    ceilings = [compute_ceiling(item, device, known.case("likely")) for item in work.each]
    groups = group_by_time_lost(ceilings)
    if maximum:
        named = groups[:maximum]
        lost, whole = sum(group.lost for group in named), sum(group.lost for group in groups)
        terminal.show(
            "\n  dispatch by dispatch: lost against "
            f"its bytes at {device.memory_gbps:g} GB/s: {1e6 * whole:.0f} µs, {1e6 * lost:.0f} of them by",
            make_lost_table(named),
            out=out,
        )
    report.results.append(
        Result(
            f"predict/{device.key}",
            "prediction",
            "pass",
            reason=f"bound by {parts.bound}",
            measure={
                "tokens_per_second": speed,
                "range": [low, high],
                "ceiling": prediction.ceiling,
                "flops_ceiling": prediction.flops_ceiling,
                "bound_seconds": asdict(bounds),
                "seconds": parts.as_dict(),
                "worth": [asdict(change) for change in changes],
                "plain": {item.name: item.plain for item in _list_savings(work, plain, device, known)},
                "dispatches": [make_lost_measure(group) for group in groups],
                "notes": list(prediction.notes),
            },
            limit={"assumed": {name: list(item.value) for name, item in known.assumptions.items()}},
        )
    )


def _show_speculation(
    gguf: GGUFFile,
    arguments: argparse.Namespace,
    acceptance: tuple[float, int | None],
    devices: list[DeviceRow],
    known: DeviceTable,
    report: Report,
    out: TextIO,
) -> None:
    from zinc_rt.cli.report import Result
    from zinc_rt.perf.predict.speculation import ENDS, MISSING, has_mtp_layer, predict_speculation

    probability, drafts = acceptance
    missing = ENDS if has_mtp_layer(gguf) else MISSING + ENDS
    ctx, position = _choose_position(gguf, arguments)
    terminal.show(f"\nspeculation, each draft accepted with probability {probability:g}", out=out)
    for device in devices:
        found = predict_speculation(
            gguf, device, known, probability, drafts, ctx=ctx, position=position, ordering=arguments.ordering,
            kv_type=arguments.kv_type,
        )  # fmt: skip
        best = max(found, key=lambda row: row.gain["likely"])
        terminal.show(
            f"  {device.name}: {best.gain['likely']:.2f} x of plain decoding ({best.gain['pessimistic']:.2f} to "
            f"{best.gain['optimistic']:.2f}) with {best.drafts} drafts, {best.tokens_per_second:.1f} tok/s",
            *(
                f"    {row.drafts} drafts: {row.expected:.2f} tokens a step of {row.tokens:g} tokens, "
                f"{1e3 * row.seconds['likely']:.2f} ms, {row.gain['likely']:.2f} x"
                for row in found
            ),
            *_describe_draft(best),
            out=out,
        )
        measure = {"best": best.drafts, "drafts": {str(row.drafts): asdict(row) for row in found}}
        result = Result(f"speculation/{device.key}", "prediction", "pass", reason=missing, measure=measure)
        report.results.append(result)
    terminal.show(f"  not included: {missing}", out=out)


def _describe_draft(row: SpeculationGain) -> list[str]:
    seconds = row.draft_seconds.get("likely")
    return [f"    {1e3 * seconds:.2f} ms for each draft by the file's MTP layer, included"] if seconds else []


def _show_memory(
    work: TokenWork, device: DeviceRow, known: DeviceTable, report: Report, out: TextIO, experts: Experts
) -> None:
    """Print the placement of the weights and, for a decoded token, the cost of experts in host memory."""
    from zinc_rt.host.errors import InputError
    from zinc_rt.perf.predict.host_experts import place_host_experts
    from zinc_rt.perf.predict.roofline import predict

    measure = report.results[-1].measure
    efficiency = known.case("likely")["read_efficiency"]
    try:
        placement = place_host_experts(work.weights, device, experts, read_efficiency=efficiency)
    except InputError as error:
        measure["does_not_fit"] = str(error)
        terminal.show(f"  memory: {error}", out=out)
        return
    placed = placement.residency
    measure["weights"] = placed.as_dict()
    terminal.show(f"\n  memory: {placed.text}", out=out)
    if not placed.host or work.tokens > 1:
        return
    speed = 1 / (predict(work, device, known).likely.seconds + placement.extra)
    measure["weights"] |= {"pcie_seconds_a_token": placement.seconds, "tokens_per_second": speed}
    terminal.show(
        f"  {1e6 * placement.seconds:.0f} µs of a token at the link's {device.pcie_gbps:.0f} GB/s, "
        f"which is the least: at most {speed:.1f} tok/s",
        out=out,
    )


def _describe_work(work: TokenWork) -> dict[str, Any]:
    return {
        "tokens": work.tokens,
        "sequences": work.sequences,
        "read_bytes": work.read_bytes,
        "expanded": [asdict(item) for item in work.expanded],
        "written_bytes": work.written_bytes,
        "traffic": [asdict(row) for row in work.traffic],
        "dispatches": work.dispatches,
        "barriers": work.barriers,
        "packets": work.packets,
        "ib_dwords": work.ib_dwords,
        "readback_bytes": work.readback_bytes,
        "logits_bytes": work.logits_bytes,
        "instructions": sum(item.waves.instructions for item in work.each),
        "vector_flops": sum(item.waves.vector_flops for item in work.each),
        "kernels": {
            name: {"waves": kernel.waves, "mix": kernel.mix, "vopd_rate": kernel.vopd_rate}
            for name, kernel in work.kernels.items()
        },
    }
