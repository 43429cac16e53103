"""Make, check, compare, list and import golden values."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from zinc_rt.cli import options
from zinc_rt.cli.command import Command
from zinc_rt.cli.observer import make_observer
from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.errors import InputError, OutputError, UsageError
from zinc_rt.host.terminal import Part, Table
from zinc_rt.validate.goldens.parser import DEFAULT_STEPS, DUMPERS, SIZES, build_parser

if TYPE_CHECKING:
    from pathlib import Path

    from zinc_rt.cli.report import Report, Result
    from zinc_rt.golden.format import Golden
    from zinc_rt.validate.check_result import CheckResult
    from zinc_rt.validate.goldens.report import GoldenReport

DEFAULT_CONTEXT = 256
# Options of golden make that say how a model runs
FOR_A_MODEL = (
    *("tokens", "prompt", "nodes", "steps", "digests", "tier", "ctx", "threads"),
    *("timeout", "sanitizer", "unchecked", "facts", "coherence", "reorder"),
)
Show = Callable[[Part], None]


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    match arguments.what:
        case "make":
            return _write_tiny_model(arguments) if arguments.tiny else _make_golden(arguments)
        case "check":
            return finish_report(check_goldens(arguments), arguments)
        case "diff":
            return finish_report(compare_goldens(arguments), arguments)
        case "list":
            return _list_goldens(arguments)
        case "dumper":
            return _write_dumper(arguments)
        case _:
            return _import_golden(arguments)


def _output_path(arguments: argparse.Namespace, *, folder: bool = False) -> Path:
    from pathlib import Path

    from zinc_rt.host.files import check_writable

    if not arguments.out:
        raise UsageError("no output was named", next="-o FOLDER" if folder else "-o FILE")
    path = Path(arguments.out)
    if folder:
        return path
    if path.exists() and not arguments.force:
        raise OutputError(f"{path}: the file already exists", next="--force replaces it, or choose another name")
    check_writable(arguments.out)
    return path


def _reject_options(arguments: argparse.Namespace, names: tuple[str, ...], reason: str) -> None:
    """Reject options that would have no effect."""
    for name in names:
        if getattr(arguments, name) not in (None, False, []):
            raise UsageError(f"--{name.replace('_', '-')} {reason}")


def _make_golden(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.devices import ORACLE, choose_tier
    from zinc_rt.engine.engine import choose_default_ctx
    from zinc_rt.golden.make import make_golden
    from zinc_rt.model.pooling import find_pooling
    from zinc_rt.validate.prepare import check_generates

    _reject_options(arguments, ("seed", "quant", *SIZES), "goes with --tiny")
    out = _output_path(arguments)
    settings = options.read_settings_once()
    gguf = options.read_model(arguments.model)
    choice = choose_tier(
        arguments.tier or ORACLE.tier,
        arguments.device,
        ordering=arguments.ordering,
        unchecked=arguments.unchecked,
        **options.simulation_options(arguments),
    )
    options.check_options_used([choice], arguments)
    tokens = options.choose_model_tokens(gguf, arguments.tokens, arguments.prompt)
    steps = arguments.steps
    check_generates(gguf, steps or 0)
    if steps is None:
        steps = (
            0
            if find_pooling(gguf)
            else max(0, min(DEFAULT_STEPS, choose_default_ctx(gguf, arguments.ctx) - len(tokens)))
        )
    arrays = make_golden(
        gguf,
        tokens,
        out,
        ordering=arguments.ordering,
        steps=steps,
        ctx=arguments.ctx,
        kv_type=arguments.kv_type,
        nodes=arguments.nodes,
        choice=choice,
        digests=arguments.digests,
        settings=settings,
        threads=options.choose_threads(arguments, settings),
        timeout_seconds=options.parse_timeout(arguments),
        command=arguments.line,
        around=make_observer(arguments).around_engine,
    )
    show = _show(arguments)
    report = start_report(
        Report("golden make", ordering=arguments.ordering, shortcuts=settings.list_shortcuts()), arguments
    )
    for clamp in report.shortcuts:
        show(f"shortcut  {clamp}")
    report.ctx = choose_default_ctx(gguf, arguments.ctx)
    what = f"{len(tokens)} tokens + {steps} steps in {arguments.ordering} on {choice.tier}, {len(arrays)} arrays"
    report.results.append(_make_written_result(out, what, show))
    return finish_report(report, arguments)


def _make_written_result(path: Path, what: str, show: Show) -> Result:
    from zinc_rt.cli.report import Result

    show(f"wrote {path}, {path.stat().st_size / 1024:.0f} KiB: {what}")
    return Result(
        path.name, "golden", "pass", reason=what, measure={"bytes": path.stat().st_size}, artifacts=[str(path)]
    )


def _write_tiny_model(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES
    from zinc_rt.golden.tiny_models.writer import write_tiny
    from zinc_rt.host.files import check_writable

    if arguments.tiny == "help":
        _reject_options(arguments, ("json",), "goes with a model that is made")
        terminal.show("\n".join(ARCHITECTURES))
        return 0
    _reject_options(arguments, FOR_A_MODEL, "goes with --model")
    sizes = {size: getattr(arguments, size) for size in SIZES if getattr(arguments, size) is not None}
    quant, seed = arguments.quant or "f32", arguments.seed or 0
    if seed < 0:
        raise UsageError(f"--seed {seed}: expected 0 or more")
    if arguments.tiny != "all":
        targets = {arguments.tiny: _output_path(arguments)}
    else:
        folder = _output_path(arguments, folder=True)
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder}: not a folder", next="-o FOLDER")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot create the folder: {error.strerror}") from error
        targets = {name: folder / f"tiny-{name}-{quant}.gguf" for name in ARCHITECTURES}
        paths = [path for path in targets.values() if path.exists()]
        if paths and not arguments.force:
            raise OutputError(
                f"{paths[0]}: the file already exists", next="--force replaces it, or choose another folder"
            )
        check_writable(*map(str, targets.values()))
    report = start_report(Report("golden make"), arguments)
    for name, path in targets.items():
        write_tiny(path, name, seed=seed, quant=quant, **sizes)
        report.results.append(_make_written_result(path, f"{name}, {quant}, seed {seed}", _show(arguments)))
    return finish_report(report, arguments)


def check_goldens(arguments: argparse.Namespace) -> GoldenReport:
    """Compute each golden again, compare and show the result: the named ones, or the embedded ones if none is
    named. Raises InputError for a golden or model that cannot be used, UsageError for wrong options."""
    from zinc_rt.golden.embedded import list_embedded_pairs, list_vulkan_pairs
    from zinc_rt.golden.format import read_golden
    from zinc_rt.validate.goldens.check import check_golden, open_model
    from zinc_rt.validate.goldens.report import GoldenReport

    settings = options.read_settings_once()
    threads = options.choose_threads(arguments, settings)
    report = GoldenReport("golden check", shortcuts=settings.list_shortcuts())
    start_report(report, arguments)
    show = _show(arguments)
    named = [(path, arguments.model) for path in arguments.goldens]
    if arguments.model and not named:
        raise UsageError("--model needs a golden", next="zinc-rt golden check G.npz --model M.gguf")
    ours = [(str(pair.golden), str(pair.model)) for pair in (*list_embedded_pairs(), *list_vulkan_pairs())]
    for path, model in named or ours:
        golden = read_golden(path)
        checks = check_golden(
            golden,
            open_model(golden, model),
            settings=settings,
            observer=make_observer(arguments),
            threads=threads,
            report=lambda text: None,
        )
        results = list(checks)
        report.checks += results
        report.results += [result.reported() for result in results]
        _show_golden(golden, results, show)
    for clamp in settings.list_shortcuts():
        show(f"shortcut  {clamp}")
    show(_format_verdict(report, len(named or ours)))
    return report


def compare_goldens(arguments: argparse.Namespace) -> GoldenReport:
    """Compare two goldens and show where they differ. Raises InputError for a golden that cannot be read."""
    from zinc_rt.golden.format import read_golden
    from zinc_rt.validate.goldens.diff import diff_goldens
    from zinc_rt.validate.goldens.report import GoldenReport
    from zinc_rt.validate.histograms import text as histogram_text
    from zinc_rt.validate.table import format_sections

    got, want = read_golden(arguments.got), read_golden(arguments.want)
    report = GoldenReport("golden diff")
    start_report(report, arguments)
    show = _show(arguments)
    for golden in (got, want):
        show(f"{golden.path.name}  {golden.source}{f', {golden.ordering}' if golden.ordering else ''}")
    comparison = diff_goldens(got, want, repro=arguments.line)
    report.checks = list(comparison.results)
    report.results = [result.reported() for result in comparison.results]
    report.details["histograms"] = comparison.matrix.as_dict()
    for page in format_sections(comparison.results, verbose=arguments.verbose):
        show(page)
    for page in histogram_text.format_pages(comparison.matrix, verbose=arguments.verbose):
        show(page)
    show(f"{report.verdict()['status']}  {comparison.verdict}")
    return report


def _write_dumper(arguments: argparse.Namespace) -> int:
    from importlib.resources import files

    from zinc_rt.cli.report import Report
    from zinc_rt.host.files import write_atomically

    name = DUMPERS[arguments.engine]
    text = files("zinc_rt.golden").joinpath(name).read_bytes()
    report = start_report(Report("golden dumper"), arguments)
    if not arguments.out:
        _reject_options(arguments, ("json",), "goes with -o FILE: the program goes to stdout")
        print(text.decode(), end="")
        return 0
    out = _output_path(arguments)
    write_atomically(out, lambda file: file.write(text))
    report.results.append(
        _make_written_result(out, f"for {arguments.engine}; its first lines say how to run it", _show(arguments))
    )
    return finish_report(report, arguments)


def _format_verdict(report: Report, goldens: int) -> str:
    counts = report.counts()
    parts = [f"{counts.get('pass', 0)} checks passed"]
    if counts.get("fail"):
        parts.insert(0, f"{counts['fail']} failed")
    parts += sorted({f"skipped: {result.reason}" for result in report.results if result.status == "skip"})
    return f"{report.verdict()['status']}  {goldens} golden{'s' * (goldens != 1)}: {', '.join(parts)}"


def _show_golden(golden: Golden, results: list[CheckResult], show: Show) -> None:
    from zinc_rt.validate.table import format_table

    failed = [result for result in results if result.status == "fail"]
    passed = sum(result.status == "pass" for result in results)
    outputs = (result.distance for result in results if result.kind in ("logits", "decode"))
    worst = max((distance.max_abs for distance in outputs if distance is not None), default=0.0)
    state = "FAIL" if failed else "pass"
    show(f"{state}  {golden.path.name}  {golden.source}, {passed} checks passed, logits within {worst:.1e}")
    compared = [result for result in failed if result.first_bad]
    for result in failed:
        if not result.first_bad:
            show(f"  {result.reason}")
    if compared:
        show(format_table(compared))
    if failed:
        for text in dict.fromkeys(result.cause for result in failed if result.cause):
            show(f"  cause  {text}")
        show(f"  repro  {failed[0].repro}")
        for text in dict.fromkeys(result.advice for result in failed if result.advice):
            show(f"  next  {text}")


def _show(arguments: argparse.Namespace) -> Show:
    stream = choose_output_stream(arguments)
    return lambda text: terminal.show(text, out=stream)


def _list_goldens(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from zinc_rt.cli.report import Report, Result
    from zinc_rt.golden.embedded import FOLDER
    from zinc_rt.validate.goldens.listing import HEADERS, read_golden_row

    folder = Path(arguments.folder) if arguments.folder else FOLDER
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", next="zinc-rt golden list FOLDER")
    rows = [read_golden_row(path) for path in sorted(folder.glob("*.npz"))]
    report = start_report(
        Report("golden list", details={"folder": str(folder), "goldens": [item.as_dict() for item in rows]}),
        arguments,
    )
    report.results = [
        Result(
            item.path,
            "golden",
            "skip" if item.problem else "fail" if item.state == "expired" else "pass",
            reason=item.problem or item.why,
            advice=item.next,
        )
        for item in rows
    ]
    show = _show(arguments)
    show(Table(HEADERS, [item.format_cells() for item in rows]))
    for item in rows:
        if item.next:
            show(f"  {Path(item.path).stem} {item.state}, next: {item.next}")
    good = sum(not item.problem for item in rows)
    others = f", {len(rows) - good} other files" if good < len(rows) else ""
    show(f"{good} goldens in {folder}{others}")
    return finish_report(report, arguments)


def _import_golden(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report

    out = _output_path(arguments)
    report = start_report(Report("golden import"), arguments)
    show = _show(arguments)
    gguf = options.read_model(arguments.model)
    if arguments.origin == "npz":
        from zinc_rt.golden.npz_import import import_npz, parse_names

        _reject_options(
            arguments,
            ("tokens", "prompt", "steps", "dequantised", "rows", "only_rows"),
            "goes with --from llama-cpp",
        )
        if not arguments.dump:
            raise UsageError(
                "no dump was named", next="zinc-rt golden import --from npz DUMP.npz --model M.gguf -o G.npz"
            )
        arrays = import_npz(
            arguments.dump,
            gguf,
            out,
            names=parse_names(arguments.map),
            source=arguments.source or "a dump",
            ctx=arguments.ctx,
            command=arguments.line,
        )
        report.results.append(
            _make_written_result(out, f"{len(arrays['ids'])} tokens, " + ", ".join(sorted(arrays)), show)
        )
        return finish_report(report, arguments)
    from zinc_rt.engine.engine import choose_default_ctx
    from zinc_rt.golden.llama_cpp.importing import import_llama_cpp
    from zinc_rt.validate.goldens.check import PLAIN

    if arguments.dump:
        raise UsageError(f"{arguments.dump}: a dump needs --from npz")
    _reject_options(arguments, ("map", "source"), "goes with --from npz")
    tokens = options.choose_model_tokens(gguf, arguments.tokens, arguments.prompt)
    steps = DEFAULT_STEPS if arguments.steps is None else arguments.steps
    terminal.show(f"running {len(tokens)} tokens + {steps} steps through llama.cpp ...", out=sys.stderr)
    arrays = import_llama_cpp(
        arguments.model,
        tokens,
        out,
        steps=steps,
        context=max(DEFAULT_CONTEXT, len(tokens) + steps)
        if arguments.ctx is None
        else choose_default_ctx(gguf, arguments.ctx),
        dequantised=arguments.dequantised,
        rows=arguments.rows or (),
        whole=not arguments.only_rows,
        command=arguments.line,
    )
    report.results.append(
        _make_written_result(out, f"{len(tokens)} tokens + {steps} steps, {len(arrays)} arrays", show)
    )
    plain = all(tensor.dtype in PLAIN for tensor in gguf.tensors.values())
    if not plain and not arguments.dequantised:
        show("note  these weights are quantised; only a golden with --dequantised compares tightly")
    return finish_report(report, arguments)


main = Command("golden", partial(build_parser, __doc__), _run_command)


if __name__ == "__main__":
    sys.exit(main())
