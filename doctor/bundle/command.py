"""Collect diagnostics without private data, or read such bundles."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, printable, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import InputError, UsageError, error_first_line
from zinc_rt.host.terminal import Column, Table

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report

EPILOG = """\
examples:
  zinc-rt bundle -o mine.tar.gz                      this machine: doctor, probes, hangs, logs, learned facts
  zinc-rt bundle -o mine.tar.gz --add report.json facts.json
  zinc-rt bundle show mine.tar.gz                    print the content as text
  zinc-rt bundle diff good.tar.gz bad.tar.gz         compare two machines
  zinc-rt bundle import *.tar.gz                     add bundles to the store (--store F)
  zinc-rt bundle page -o matrix.html                 matrix of setups and probes, with regressions
  zinc-rt bundle export --kcidb -o results.json      for KCIDB, the Linux kernel's test result database

A bundle is a folder, or a .tar.gz or .tar.zst file, of at most 2 MB. Names of people, machines and networks,
addresses, serial numbers, keys and home paths are replaced by placeholders (docs/bundle.md).

exit codes: 0 done, 1 one of several bundles could not be imported, 2 wrong usage or a damaged bundle.
"""
DEFAULT_OUT = "zinc-rt-bundle.tar.gz"


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="zinc-rt bundle",
        description=__doc__,
        epilog=EPILOG,
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path(DEFAULT_OUT),
        metavar="OUT",
        help=f"bundle to write (default {DEFAULT_OUT})",
    )
    parser.add_argument(
        "--device",
        default="auto",
        metavar="WHICH",
        help="auto, hw, /dev/dri/renderDN, or sim[:CHIP[@LINUX]] for a simulated machine (default auto)",
    )
    parser.add_argument(
        "--add",
        nargs="+",
        type=Path,
        default=[],
        metavar="PATH",
        help="also include these reports, facts, logs or folders",
    )
    parser.add_argument(
        "--hangs",
        type=Path,
        default=Path("zinc-rt-hangs"),
        metavar="DIR",
        help="folder of hang reports (default zinc-rt-hangs)",
    )
    parser.add_argument("--only-added", action="store_true", help="exclude earlier hangs and bring-ups")
    add_json(parser, tables=False)
    parser.set_defaults(body=_make_bundle)
    actions = parser.add_subparsers(title="actions on existing bundles", metavar="ACTION")

    def add_action(name: str, text: str, body: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        item = actions.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".")
        item.set_defaults(body=body, action=name)
        return item

    show = add_action("show", "print the content as text", _show_bundle)
    show.add_argument("bundle", type=Path)
    diff = add_action("diff", "compare two machines", _diff_bundles)
    diff.add_argument("a", type=Path)
    diff.add_argument("b", type=Path)
    take = add_action("import", "add bundles to the store", _import_bundles)
    take.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE")
    page = add_action(
        "page",
        "write the store as a page: setups x probes, regressions by kernel and firmware; needs pandas",
        _write_page,
    )
    page.add_argument("-o", "--out", type=Path, required=True, metavar="F.html")
    export = add_action("export", "export the store to another database's format", _export_bundles)
    export.add_argument("--kcidb", action="store_true", required=True, help="export in KCIDB's format, schema 5.3")
    export.add_argument("--simulated", action="store_true", help="include simulated devices, marked as such")
    export.add_argument("-o", "--out", type=Path, required=True, metavar="F.json")
    for item in (take, page, export):
        item.add_argument("--store", type=Path, metavar="F", help="the store (default: in the state folder)")
    for item in (show, diff, take, page, export):
        add_json(item, tables=item is diff)
    return parser


def _make_bundle(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bundle import format as bundles
    from zinc_rt.doctor.bundle import gather
    from zinc_rt.doctor.bundle.show import format_lines
    from zinc_rt.host.files import check_writable
    from zinc_rt.probes.device import parse_device, require_amd_gpu

    spec = parse_device(arguments.device, ())
    if arguments.device == "hw":  # auto also tells of a machine whose GPU cannot be seen
        require_amd_gpu(spec, "zinc-rt bundle")
    check_writable(report=arguments.json)
    _check_out(arguments.out)
    maker = gather.begin_bundle(spec)
    gather.add_paths(maker, arguments.add)
    gather.add_journals(maker, spec)
    if not arguments.only_added:
        gather.add_stages(maker, spec)
        gather.add_hangs(maker, arguments.hangs)
    bundle = maker.make_bundle()
    size_bytes = bundles.write(bundle, arguments.out)
    out = choose_output_stream(arguments)
    for line in format_lines(bundle):
        terminal.show(printable(line), out=out)
    terminal.show(f"wrote     {arguments.out}, {size_bytes / 1000:.0f} kB; review it before you share it", out=out)
    hidden = dict(bundle.manifest["hidden"])
    measure = {"bytes": size_bytes, "files": len(bundle.files), "hidden": hidden, "bundle": bundle.id}
    report = _start_report(arguments, "bundle")
    report.device = {"simulated": spec.simulated}
    _add_result(report, "bundle", measure, artifacts=[str(arguments.out)])
    return finish_report(report, arguments)


def _show_bundle(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bundle.format import read
    from zinc_rt.doctor.bundle.show import format_lines
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    bundle = read(arguments.bundle)
    for line in format_lines(bundle):
        terminal.show(printable(line), out=choose_output_stream(arguments))
    report = _start_report(arguments, "bundle show")
    _add_result(
        report,
        arguments.bundle.name,
        {"bundle": bundle.id, "files": len(bundle.files), **_summarise_bundle(bundle)},
    )
    return finish_report(report, arguments)


def _diff_bundles(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from zinc_rt.doctor.bundle.compare import diff_machines
    from zinc_rt.doctor.bundle.format import read
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    differences = diff_machines(read(arguments.a), read(arguments.b))
    out = choose_output_stream(arguments)
    if differences:
        columns = ("kind", Column("name", widest=44), Column("a", widest=60), Column("b", widest=60))
        rows = [
            [
                difference.kind,
                printable(difference.name),
                *(printable(side, 240) or "(not found)" for side in (difference.a, difference.b)),
            ]
            for difference in differences
        ]
        terminal.show(Table(columns, rows), out=out)
    count = f"{len(differences)} difference{'s' * (len(differences) != 1)}"
    terminal.show(count if differences else "no difference in the data that both bundles contain", out=out)
    report = _start_report(arguments, "bundle diff")
    _add_result(report, f"{arguments.a.name}..{arguments.b.name}", {"differences": len(differences)})
    report.details = {"differences": [asdict(difference) for difference in differences]}
    return finish_report(report, arguments)


def _import_bundles(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bundle.format import read
    from zinc_rt.doctor.bundle.store import BundleStore, default_path
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    out, report = choose_output_stream(arguments), _start_report(arguments, "bundle import")
    path = arguments.store or default_path()
    with BundleStore(path) as store:
        for name in arguments.bundles:
            try:
                bundle = read(name)
            except (InputError, UsageError) as error:
                if len(arguments.bundles) == 1:
                    raise
                terminal.show(f"refused   {error}", out=out)
                _add_result(report, str(name), {}, status="fail", reason=error_first_line(error))
                continue
            new = store.add(bundle)
            terminal.show(f"{'imported' if new else 'known':<9} {name} ({bundle.id})", out=out)
            _add_result(report, str(name), {"bundle": bundle.id, "new": new})
        total = len(store.machines())
    terminal.show(f"store     {path}: {total} bundles", out=out)
    return finish_report(report, arguments)


def _write_page(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import write_text
    from zinc_rt.doctor.bundle.page import build_content, render_page
    from zinc_rt.doctor.bundle.store import BundleStore, default_path
    from zinc_rt.host.files import check_writable

    check_writable(str(arguments.out), report=arguments.json)
    with BundleStore(arguments.store or default_path(), must_exist=True) as store:
        machines = store.machines()
    write_text(arguments.out, render_page(machines))
    page_content = build_content(machines)
    terminal.show(
        f"wrote     {arguments.out}: {len(machines)} bundles, {len(page_content['matrix'].rows)} combinations, "
        f"{len(page_content['matrix'].probes)} probes, {len(page_content['regressions'])} regressions",
        out=choose_output_stream(arguments),
    )
    report = _start_report(arguments, "bundle page")
    _add_result(report, "page", {"bundles": len(machines)}, artifacts=[str(arguments.out)])
    return finish_report(report, arguments)


def _export_bundles(arguments: argparse.Namespace) -> int:
    import json

    from zinc_rt.cli.report import write_text
    from zinc_rt.doctor.bundle.kcidb import export_machines
    from zinc_rt.doctor.bundle.store import BundleStore, default_path
    from zinc_rt.host.files import check_writable

    check_writable(str(arguments.out), report=arguments.json)
    with BundleStore(arguments.store or default_path(), must_exist=True) as store:
        exported = export_machines(store.machines(), simulated=arguments.simulated)
    write_text(arguments.out, json.dumps(exported, indent=1) + "\n")
    counts = {name: len(exported[name]) for name in ("checkouts", "builds", "tests")}
    terminal.show(
        f"wrote     {arguments.out}: {', '.join(f'{n} {name}' for name, n in counts.items())}",
        out=choose_output_stream(arguments),
    )
    report = _start_report(arguments, "bundle export")
    _add_result(report, "kcidb", counts, artifacts=[str(arguments.out)])
    return finish_report(report, arguments)


def _check_out(path: Path) -> None:
    from zinc_rt.doctor.bundle import archive
    from zinc_rt.doctor.bundle.format import list_bundle_files
    from zinc_rt.host.files import check_writable

    if archive.is_archive(path):
        check_writable(str(path))
    elif path.suffix and not path.is_dir():
        raise UsageError(f"-o {path}: expected a folder, or a file that ends in {', '.join(archive.SUFFIXES)}")
    else:
        list_bundle_files(path)


def _summarise_bundle(bundle: Any) -> dict[str, Any]:
    return {"combination": bundle.combination.as_dict(), "findings": len(bundle.findings)}


def _start_report(arguments: argparse.Namespace, command: str) -> Report:
    from zinc_rt.cli.report import Report

    return start_report(Report(command), arguments)


def _add_result(report: Report, name: str, measure: dict[str, Any], **more: Any) -> None:
    from zinc_rt.cli.report import Result

    report.results.append(Result(name, "bundle", more.pop("status", "pass"), measure=measure, **more))


main = Command("bundle", parser, lambda arguments: int(arguments.body(arguments)))
