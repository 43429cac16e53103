"""List the model files of a folder, and whether each fits in memory."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import read_settings_once
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, format_size, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, parse_context_length
from zinc_rt.host.errors import InputError, UsageError, ZincError, error_first_line
from zinc_rt.host.files import check_writable, models_folder
from zinc_rt.host.settings import Experts
from zinc_rt.host.terminal import Column
from zinc_rt.model.gguf_parts import split_name

if TYPE_CHECKING:
    from zinc_rt.host.settings import Settings
    from zinc_rt.model.gguf import GGUFFile

EXAMPLES = """\
A model fits if its weights, the caches of --slots contexts of --ctx tokens and the memory of a step fit: in the
VRAM of the GPU, with experts in host memory if they must be, or, without a GPU, in the memory of this machine.
--vram plans for another GPU. Only headers are read.

examples:
  zinc-rt models
  zinc-rt models /srv/models --ctx 32768 --slots 8
  zinc-rt models --vram 32 --ctx 0               the trained context, on a GPU with 32 GB
"""


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Whether a model fits. `weights_bytes`: in VRAM or, without a GPU, in memory; `expert_bytes`: experts in host
    memory; `context_bytes`: caches and recurrent state of all slots. `fits` is None if it cannot be planned."""

    fits: bool | None
    reason: str
    ctx: int = 0
    weights_bytes: int = 0
    expert_bytes: int = 0
    context_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """The memory that models must fit in. `vram_bytes` is 0 without a GPU."""

    vram_bytes: int
    host_bytes: int
    name: str


def parser() -> argparse.ArgumentParser:
    parser = Parser(description="List model files, and whether each fits in memory.", epilog=EXAMPLES)
    parser.add_argument(
        "folders",
        metavar="PATH",
        nargs="*",
        help="folders or files (default: ZINC_RT_MODELS)",
    )
    parser.add_argument(
        "-c",
        "--ctx",
        type=parse_context_length,
        metavar="N",
        help="context length; 0: the trained length (default: that, at most 4096)",
    )
    parser.add_argument("--slots", type=int, metavar="N", default=1, help="concurrent requests (default 1)")
    parser.add_argument("--vram", type=float, metavar="GB", help="a GPU with GB x 10^9 bytes of memory")
    parser.add_argument("--experts", choices=get_args(Experts), help="placement of experts, as ZINC_RT_EXPERTS")
    add_json(parser)
    return parser


def _models(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.model.gguf import read_gguf
    from zinc_rt.model.identity import identify_model

    if arguments.slots < 1:
        raise UsageError(f"--slots {arguments.slots}: expected 1 or more")
    if arguments.vram is not None and not 0 < arguments.vram < float("inf"):
        raise UsageError(f"--vram {arguments.vram:g}: expected gigabytes, more than 0")
    check_writable(report=arguments.json)
    knobs = read_settings_once()
    report = start_report(Report("models"), arguments)
    memory = _memory(arguments.vram)
    roots = [Path(item) for item in arguments.folders] or [Path(knobs.models or models_folder())]
    rows: list[tuple[str, ...]] = []
    for path in _files(roots, named=bool(arguments.folders)):
        name = str(path)
        if path.suffix == ".part":
            state = _unfinished(path)
            rows.append((name, "", "", "", "", "", "", state))
            report.results.append(Result(name, "model", "pass", reason=state))
            continue
        try:
            gguf = read_gguf(path)
            shape = identify_model(gguf)
        except ZincError as error:
            reason = error_first_line(error).removeprefix(f"{path}: ")
            rows.append((name, "", "", "", "", "", "", f"unreadable: {reason}"))
            report.results.append(Result(name, "model", "fail", cause=reason, advice=error.next))
            continue
        answer = _fit(gguf, arguments, knobs, memory)
        largest = max(shape.weights, key=shape.weights.__getitem__, default="")
        sizes = (answer.weights_bytes, answer.context_bytes, answer.expert_bytes)
        shown = [format_size(size) if size else "" for size in sizes]
        word = {True: "yes", False: "no", None: "unknown"}[answer.fits]
        verdict = f"{word}: {answer.reason}" if answer.reason else word
        rows.append((name, shape.architecture, largest, format_size(shape.size_bytes), *shown, verdict))
        measure = {**shape.as_dict(), **asdict(answer), "parts": len(gguf.parts)}
        report.results.append(Result(name, "model", "pass", reason=answer.reason, measure=measure))
    out = choose_output_stream(arguments)
    if rows:
        sizes_columns = [Column(text, right=True) for text in ("size", "weights", "context", "host experts")]
        terminal.show_table(["model", "architecture", "type", *sizes_columns, "fits"], rows, out)
    terminal.show(f"{len(rows)} models in {', '.join(map(str, roots))}; memory: {memory.name}", out=out)
    if not rows:
        terminal.show("next      zinc-rt pull OWNER/NAME-GGUF:Q4_K_M, or pass a folder", out=out)
        report.results.append(Result("models", "models", "skip", reason="no model file"))
    report.details = {"memory": asdict(memory), "slots": arguments.slots}
    return finish_report(report, arguments)


def _files(roots: list[Path], *, named: bool) -> Iterator[Path]:
    """Yield model files, the first part of split ones, and unfinished downloads. Raise InputError for a named path
    that does not exist."""
    for root in roots:
        if root.is_file():
            yield root
            continue
        if named and not root.is_dir():
            raise InputError(f"{root}: no such file or folder")
        paths = sorted(
            item for item in root.rglob("*") if item.suffix == ".gguf" or item.name.endswith(".gguf.part")
        )
        present = set(paths)
        for path in paths:
            split = split_name(path)
            earlier = split and any(
                path.with_name(f"{split[0]}-{number:05d}-of-{split[2]:05d}.gguf") in present
                for number in range(1, split[1])
            )
            if path.is_file() and not earlier:
                yield path


def _unfinished(path: Path) -> str:
    try:
        size = json.loads(path.with_name(f"{path.name}.json").read_text(encoding="utf-8"))["size_bytes"]
        total = f" of {format_size(int(size))}"
    except (OSError, ValueError, KeyError, TypeError):
        total = ""
    return f"unfinished: {format_size(path.stat().st_size)}{total}; the same zinc-rt pull resumes it"


def _memory(vram_gb: float | None) -> AvailableMemory:
    import psutil

    from zinc_rt.kmd.discover import find_gpus
    from zinc_rt.kmd.linux import LinuxDriver

    host = psutil.virtual_memory().total
    if vram_gb is not None:
        return AvailableMemory(int(vram_gb * 1e9), host, f"a GPU with {vram_gb:g} GB")
    nodes = [gpu.node for gpu in find_gpus(LinuxDriver()).gpus if gpu.node is not None]
    node = max(nodes, key=lambda item: item.vram_bytes, default=None)
    if node is not None and node.vram_bytes:
        return AvailableMemory(node.vram_bytes, host, f"{node.arch}, {format_size(node.vram_bytes)}")
    return AvailableMemory(0, host, f"this machine's, {format_size(host)} (no AMD GPU; --vram GB plans for one)")


def _fit(gguf: GGUFFile, arguments: argparse.Namespace, knobs: Settings, memory: AvailableMemory) -> MemoryFit:
    from zinc_rt.engine.engine import choose_default_ctx, read_trained_ctx
    from zinc_rt.engine.memory_fit import fit_model
    from zinc_rt.engine.variants import find_overrides
    from zinc_rt.isa.target import DEFAULT_ARCH
    from zinc_rt.kernels.sets import find_code_chip, find_kernel_set
    from zinc_rt.mem.plan import count_buffer_bytes
    from zinc_rt.model.builder import SequenceLimits
    from zinc_rt.model.registry import build_model

    if not gguf.tensors:
        return MemoryFit(None, "a tokenizer without tensors")
    try:
        ctx = min(choose_default_ctx(gguf, arguments.ctx), read_trained_ctx(gguf))
        limits = SequenceLimits(ctx=ctx, slots=arguments.slots)
        overrides = find_overrides(knobs)
        model = build_model(gguf, limits, "prefill", overrides=overrides)
    except ZincError as error:
        return MemoryFit(None, error_first_line(error).removeprefix(f"{gguf.path}: "))
    context = sum(count_buffer_bytes(spec, {}) for spec in model.graph.by_role("state", "table"))
    weights = sum(weight.raw.nbytes for weight in model.weights.values())
    kernels = find_kernel_set(find_code_chip(DEFAULT_ARCH))
    if not memory.vram_bytes or kernels is None:
        fits = weights + context <= memory.host_bytes
        return MemoryFit(fits, "" if fits else "more than this machine's memory", ctx, weights, 0, context)
    try:
        tokens = min(limits.step_tokens, ctx)
        experts = arguments.experts or knobs.experts
        placed = fit_model(
            model,
            kernels,
            memory.vram_bytes,
            tokens=tokens,
            rows=limits.slots,
            experts=experts,
            overrides=overrides,
        )
    except InputError as error:
        reason = error.next or error_first_line(error).removeprefix(f"{gguf.path}: ")
        return MemoryFit(False, reason, ctx, weights, 0, context)
    if placed.host_bytes > memory.host_bytes:
        return MemoryFit(False, "experts exceed host memory", ctx, placed.vram_bytes, placed.host_bytes, context)
    reason = f"experts of {len(placed.layers)} layers in host memory" if placed.layers else ""
    return MemoryFit(True, reason, ctx, placed.vram_bytes, placed.host_bytes, context)


main = Command("models", parser, _models)
