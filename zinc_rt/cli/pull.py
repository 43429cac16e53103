"""Download a model: all its parts, resumed and checked."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import read_settings_once
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, format_size, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.files import check_writable, models_folder
from zinc_rt.model.gguf_parts import model_stem, part_name, split_name

if TYPE_CHECKING:
    from zinc_rt.host.download import DownloadClient, Downloaded, RemoteFile
    from zinc_rt.host.settings import Settings

EXAMPLES = """\
SOURCE is a repository of the hub (OWNER/NAME, with :TEXT to choose a file by a part of its name or a pattern), the
address of a file, or a folder or file of this machine, such as a network share. All parts of a split model are
downloaded. The same command resumes an interrupted download at the byte where it stopped.

Sizes and sha256 sums are compared with those that the hub publishes; for another address, pass --sha256. A token
for the hub is read from HF_TOKEN, and sent to the hub only. ZINC_RT_HUB names a mirror.

examples:
  zinc-rt pull OWNER/NAME-GGUF:Q4_K_M
  zinc-rt pull OWNER/NAME-GGUF --list
  zinc-rt pull https://example.org/M-00001-of-00003.gguf -o models
  zinc-rt pull /mnt/share/M.gguf
"""
MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class PullSource:
    """The files of a source, and the folder for them below the folder of models."""

    files: tuple[RemoteFile, ...]
    folder: str = ""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description="Download a model, resumed and checked.", epilog=EXAMPLES)
    parser.add_argument("source", metavar="SOURCE", help="OWNER/NAME[:TEXT], an address, or a path")
    parser.add_argument("-o", "--folder", metavar="DIR", help="where to put the files (default: ZINC_RT_MODELS)")
    parser.add_argument("--revision", metavar="REV", default="main", help="branch, tag or commit of a repository")
    parser.add_argument("--sha256", metavar="HEX", help="the expected sha256 of a single file")
    parser.add_argument("--list", action="store_true", help="list the models of SOURCE instead of downloading")
    add_json(parser)
    return parser


def _pull(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.progress import show_progress
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.download import DownloadClient, download
    from zinc_rt.model.gguf import read_gguf

    check_writable(report=arguments.json)
    knobs = read_settings_once()
    report = start_report(Report("pull"), arguments)
    client = DownloadClient(token=os.environ.get("HF_TOKEN", "").strip(), token_url=knobs.hub)
    name, chosen = _split_choice(arguments.source)
    source = _source(name, chosen, arguments.revision, knobs, client)
    models = _by_model(source.files)
    out = choose_output_stream(arguments)
    if arguments.list or (len(models) > 1):
        rows = [
            (model, str(len(files)), format_size(sum(file.size_bytes or 0 for file in files)))
            for model, files in models.items()
        ]
        if not arguments.list:
            text = ", ".join(model for model, *_ in rows[:12]) + (", ..." if len(rows) > 12 else "")
            raise UsageError(
                f"{arguments.source}: {len(rows)} models: {text}",
                next=f"choose one: zinc-rt pull {name}:PART_OF_ITS_NAME",
            )
        terminal.show_table(["model", "parts", "size"], rows, out)
        for model, parts, _ in rows:
            report.results.append(Result(model, "model", "pass", measure={"parts": int(parts)}))
        return finish_report(report, arguments)
    files = [client.described(file) if file.size_bytes is None else file for file in source.files]
    if arguments.sha256:
        if len(files) > 1:
            raise UsageError(f"--sha256: {arguments.source} has {len(files)} files, expected one")
        files = [replace(files[0], sha256=arguments.sha256.lower())]
    root = Path(arguments.folder) if arguments.folder else Path(knobs.models or models_folder()) / source.folder
    done: list[Downloaded] = []
    with show_progress(sum(file.size_bytes or 0 for file in files), "download", "B") as advance:
        for file in files:
            item = download(file, root / file.name, client, magic=MAGIC, advance=advance)
            done.append(item)
            how = item.state if not item.resumed_at else f"resumed at byte {item.resumed_at:,}"
            checked = "sha256 as published" if item.checked else f"sha256 {item.sha256}, none published"
            terminal.show(f"{item.path}: {format_size(item.size_bytes)}, {how}, {checked}", out=out)
            measure = {"bytes": item.size_bytes, "resumed_at": item.resumed_at, "sha256": item.sha256}
            report.results.append(Result(file.name, "file", "pass", reason=how, measure=measure))
    gguf = read_gguf(done[0].path)  # whether the parts belong together
    report.details = {"path": str(gguf.path), "parts": len(gguf.parts), "bytes": gguf.file_bytes}
    terminal.show(f"next      zinc-rt inspect {gguf.path}", out=out)
    return finish_report(report, arguments)


def _split_choice(text: str) -> tuple[str, str]:
    """Split OWNER/NAME:TEXT; addresses and paths of this machine have no TEXT."""
    if urlsplit(text).scheme in ("http", "https") or Path(text).exists():
        return text, ""
    name, _, chosen = text.partition(":")
    return name, chosen


def _source(name: str, chosen: str, revision: str, knobs: Settings, client: DownloadClient) -> PullSource:
    from zinc_rt.host.download import RemoteFile

    if urlsplit(name).scheme in ("http", "https"):
        file = PurePosixPath(unquote(urlsplit(name).path)).name
        if not file.endswith(".gguf"):
            raise UsageError(f"{name}: expected the address of a .gguf file")
        names = _all_parts(file)
        return PullSource(tuple(RemoteFile(item, name.replace(quote(file), quote(item))) for item in names))
    path = Path(name)
    if path.is_dir():
        paths = sorted(item for item in path.rglob("*.gguf") if item.is_file())
        files = tuple(RemoteFile(item.name, str(item), item.stat().st_size) for item in paths)
        return _nonempty(name, PullSource(files))
    if path.is_file():
        names = _all_parts(path.name)
        return PullSource(tuple(RemoteFile(item, str(path.with_name(item))) for item in names))
    if name.count("/") != 1 or not all(name.split("/")) or name.startswith((".", "~")):
        raise UsageError(
            f"{name}: no such file or folder, and not a repository",
            next="pass OWNER/NAME, an http address, or a path that exists",
        )
    return _nonempty(
        f"{name}:{chosen}" if chosen else name, _repository(name, chosen, revision, knobs.hub, client)
    )


def _repository(name: str, chosen: str, revision: str, hub: str, client: DownloadClient) -> PullSource:
    """List a repository's GGUF files with their sizes and sha256 sums, by the hub's API."""
    from zinc_rt.host.download import RemoteFile

    entries: Any = client.json(f"{hub}/api/models/{name}/tree/{quote(revision, safe='')}?recursive=true")
    if not isinstance(entries, list):
        raise InputError(f"{hub}: its answer about {name} is not a list of files", next="check ZINC_RT_HUB")
    files = []
    for entry in entries:
        path = str(entry.get("path", ""))
        if not path.endswith(".gguf") or not _is_chosen(path, chosen) or ".." in PurePosixPath(path).parts:
            continue
        stored = entry.get("lfs") or {}
        url = f"{hub}/{name}/resolve/{quote(revision, safe='')}/{quote(path)}"
        size = stored.get("size", entry.get("size"))
        files.append(RemoteFile(PurePosixPath(path).name, url, size, str(stored.get("oid", ""))))
    return PullSource(tuple(sorted(files, key=lambda file: file.url)), name)


def _is_chosen(path: str, chosen: str) -> bool:
    path, chosen = path.lower(), chosen.lower()
    return not chosen or fnmatchcase(path, chosen) or chosen in model_stem(Path(path))


def _nonempty(name: str, source: PullSource) -> PullSource:
    if not source.files:
        raise InputError(f"{name}: no .gguf file", next="list the files without :TEXT, with --list")
    return source


def _all_parts(file: str) -> list[str]:
    split = split_name(Path(file))
    return [part_name(split[0], number, split[2]) for number in range(1, split[2] + 1)] if split else [file]


def _by_model(files: tuple[RemoteFile, ...]) -> dict[str, list[RemoteFile]]:
    models: dict[str, list[RemoteFile]] = {}
    for file in files:
        models.setdefault(model_stem(Path(file.name)), []).append(file)
    return models


main = Command("pull", parser, _pull)
