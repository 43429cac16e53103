"""Show a GGUF file's content, memory plan and bytes per token."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO, get_args

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import add_kv_type, add_prefill_ordering, read_settings_once
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, format_size, printable, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, add_models, parse_context_length
from zinc_rt.host.errors import InputError, UsageError, ZincError
from zinc_rt.host.settings import Experts
from zinc_rt.host.terminal import Column, Table
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Result, Status
    from zinc_rt.host.settings import Settings
    from zinc_rt.ir.graph import OpGraph
    from zinc_rt.ir.passes.matrix_cores import ProductGroup
    from zinc_rt.mem.context_bytes import PageGroupSpec
    from zinc_rt.mem.plan import MemoryPlan
    from zinc_rt.mem.residency import Residency
    from zinc_rt.mem.traffic import Traffic
    from zinc_rt.model.builder import Model, SequenceLimits
    from zinc_rt.model.gguf import GGUFFile, Tensor

EXAMPLES = """\
A file without tensors, or with a model that this version cannot run, is accepted: the sections that need tensors
are omitted with a note.

examples:
  zinc-rt inspect --model M.gguf
  zinc-rt inspect --model M.gguf --tensors
  zinc-rt inspect --model M-00001-of-00003.gguf          a split model, all its parts
  zinc-rt inspect --model M.gguf --check                 find NaN and infinity in weights and scales
  zinc-rt inspect --model M.gguf --ctx 32768 --slots 8 --step-tokens 512 --plan-json plan.json
  zinc-rt inspect --model M.gguf --ctx 32768 --slots 8 --lookahead 4 --vram 32     placement on a GPU with 32 GB
  zinc-rt inspect --model M.gguf --graph > M.ir
"""
WIDTH = 72  # of a metadata value


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Show a GGUF file's content, its memory plan and the bytes that a decoded token reads.",
        epilog=EXAMPLES,
    )
    add_models(parser, several=True)
    parser.add_argument("--tensors", action="store_true", help="list every tensor instead of tensor classes")
    parser.add_argument("--graph", action="store_true", help="print only the model's IR graph as text")
    parser.add_argument(
        "--check",
        action="store_true",
        help="read every weight; fail on NaN or infinity, also in block scales; print each file's sha256",
    )
    plan = parser.add_argument_group("the memory plan")
    plan.add_argument(
        "-c",
        "--ctx",
        type=parse_context_length,
        metavar="N",
        help="context length; 0: the trained length (default: the trained length, but at most 4096)",
    )
    add_kv_type(plan)
    add_prefill_ordering(plan, "plan a step of a prompt with it, and list the products in it")
    plan.add_argument("--slots", type=int, metavar="N", default=1, help="concurrent requests (default 1)")
    plan.add_argument(
        "--step-tokens",
        type=int,
        metavar="N",
        default=1,
        help="number of tokens in a step: 1 is decode, more is prefill (default 1)",
    )
    plan.add_argument(
        "--position",
        type=int,
        metavar="P",
        help="position of the decoded token (default: the last of the context)",
    )
    plan.add_argument(
        "--lookahead",
        type=int,
        metavar="N",
        default=0,
        help="speculative tokens per request: a step has slots x (1 + N) tokens and rows of logits",
    )
    plan.add_argument(
        "--vram", type=float, metavar="GB", help="plan the placement on a GPU with GB x 10^9 bytes of memory"
    )
    plan.add_argument(
        "--experts", choices=get_args(Experts), help="with --vram: placement of experts, like ZINC_RT_EXPERTS"
    )
    plan.add_argument("--plan-json", metavar="FILE", help="write the plan of every buffer as JSON")
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import merge_reports
    from zinc_rt.host.files import check_writable

    for name, value in (("--slots", arguments.slots), ("--step-tokens", arguments.step_tokens)):
        if value < 1:
            raise UsageError(f"{name} {value}: expected 1 or more")
    if arguments.lookahead < 0:
        raise UsageError(f"--lookahead {arguments.lookahead}: expected 0 or more")
    if arguments.vram is not None and not 0 < arguments.vram < float("inf"):
        raise UsageError(f"--vram {arguments.vram:g}: expected more than 0 gigabytes")
    if arguments.check and arguments.graph:
        raise UsageError("--graph cannot be combined with --check", next="remove one of them")
    if len(arguments.models) > 1 and (arguments.plan_json or arguments.graph):
        raise UsageError("--plan-json and --graph accept only one model", next="name a single model")
    check_writable(arguments.plan_json, report=arguments.json)
    reports = []
    for index, model in enumerate(arguments.models):
        if index:
            terminal.show("", out=choose_output_stream(arguments))
        reports.append(_inspect_file(model, arguments))
    return finish_report(merge_reports(reports), arguments)


def _inspect_file(path: str, arguments: argparse.Namespace) -> Report:
    from zinc_rt.cli.describe import describe_model
    from zinc_rt.cli.report import Report, Result, write_text
    from zinc_rt.model.gguf import read_gguf

    knobs = read_settings_once()
    report = start_report(Report("inspect", shortcuts=knobs.list_shortcuts()), arguments)
    gguf = read_gguf(path)
    out = choose_output_stream(arguments)
    needs, reason = None, ""
    try:
        needs = _MemoryNeeds.of(gguf, arguments, knobs)
    except UsageError:
        raise
    except ZincError as error:
        if arguments.graph or arguments.plan_json or arguments.vram is not None or arguments.lookahead:
            raise
        reason = str(error)
    if needs is not None and arguments.graph:
        from zinc_rt.ir.text import to_text

        print(to_text(needs.graph), end="", file=out)
    else:
        _print_file(gguf, arguments, out)
        if needs is not None:
            if needs.products:
                terminal.show(f"\nproducts of prompts in {arguments.prefill_ordering}", out=out)
                rows = [(p.label, p.op, p.count, p.refusal or arguments.prefill_ordering) for p in needs.products]
                _show_table(out, ("product", "opcode", "count", "ordering, or why it keeps --ordering"), rows)
            needs.print(out)
        else:
            terminal.show(f"\nmemory plan: none. {reason}", out=out)
    for clamp in knobs.list_shortcuts():
        terminal.show(f"shortcut  {clamp}", out=out)
    if needs is not None and arguments.plan_json:
        write_text(arguments.plan_json, needs.plan.to_json() + "\n")
    report.results.append(Result("file", "inspect", "pass", measure={"tensors": len(gguf.tensors)}))
    status: Status = "skip" if needs is None else "pass"
    report.results.append(Result("plan", "inspect", status, reason=reason.partition("\n")[0]))
    if arguments.check:
        report.results += [*_file_digests(gguf, out), *_check(gguf, out)]
    if arguments.json:
        report.model = describe_model(gguf)
        report.ctx = 0 if needs is None else needs.limits.ctx
        needed = {"plan": None, "reason": reason} if needs is None else needs.details()
        report.details = {**_describe_file(gguf), **needed}
    return report


def _file_digests(gguf: GGUFFile, out: TextIO) -> list[Result]:
    """Return a result for every file of the model, with its sha256."""
    from zinc_rt.cli.report import Result
    from zinc_rt.model.gguf import part_digest

    digests = {part.path.name: part_digest(part) for part in gguf.parts}
    terminal.show("\nfiles", out=out)
    _show_table(out, ("file", "sha256"), digests.items())
    return [Result(f"file/{name}", "file", "pass", measure={"sha256": sha256}) for name, sha256 in digests.items()]


def _check(gguf: GGUFFile, out: TextIO) -> list[Result]:
    """Return a result for every tensor with a non-finite number, and for every unknown type."""
    from zinc_rt.cli.report import Result
    from zinc_rt.model.scales import find_nonfinite_weights, has_scales

    results = [
        Result(
            f"weights/{match.tensor}",
            "weights",
            "fail",
            measure={"blocks": match.count},
            first_bad={"tensor": match.tensor, "block": match.block, "got": match.value},
            cause=match.text,
            advice="the file is damaged, or was quantised from a damaged one: fetch it again",
        )
        for match in find_nonfinite_weights(gguf)
    ]
    for dtype in sorted({tensor.dtype for tensor in gguf.tensors.values() if not has_scales(tensor.dtype)}):
        results.append(Result(f"weights/{dtype}", "weights", "skip", reason=f"no scales are known of {dtype}"))
    if not results:
        results.append(Result("weights", "weights", "pass", measure={"tensors": len(gguf.tensors)}))
    terminal.show("\nweights", out=out)
    for result in results:
        terminal.show(
            f"  {result.status}  {result.cause or result.reason or 'every float and every scale is finite'}",
            out=out,
        )
    return results


# --- the file ----------------------------------------------------------------------------------------------


def _print_file(gguf: GGUFFile, arguments: argparse.Namespace, out: TextIO) -> None:
    tensors = gguf.tensors.values()
    architecture = gguf.metadata.get("general.architecture", "no architecture named")
    terminal.show(f"{gguf.path}: {printable(str(architecture))}, {format_size(gguf.file_bytes)}", out=out)
    if len(gguf.parts) > 1:
        terminal.show(f"\nparts: {len(gguf.parts)}", out=out)
        files = ((part.path.name, len(part.tensors), f"{part.size_bytes:,}") for part in gguf.parts)
        _show_table(out, ("file", "tensors", "bytes"), files)
    terminal.show("\nmetadata", out=out)
    _show_table(out, (), ((printable(key), _format_value(value)) for key, value in gguf.metadata.items()))
    if not gguf.tensors:
        terminal.show("\nno tensors: a vocabulary only", out=out)
        return
    terminal.show(
        f"\ntensors: {len(tensors)}, {sum(_count_elements(t) for t in tensors):,} parameters, "
        f"{format_size(sum(t.nbytes for t in tensors))}",
        out=out,
    )
    rows = [
        (item.name, item.dtype, item.count, item.shape, f"{item.size_bytes:,}") for item in _group_tensors(gguf)
    ]
    _show_table(out, ("class", "type", "count", "shape (rows, columns)", "bytes"), rows)
    if size_bytes := _count_mtp_bytes(gguf):
        terminal.show(
            f"\nnext-token prediction: {format_size(size_bytes)} of layers that draft with --speculate mtp",
            out=out,
        )
    if arguments.tensors:
        terminal.show("", out=out)
        item = ((printable(t.name), t.dtype, _format_shape(t.shape), f"{t.nbytes:,}") for t in tensors)
        _show_table(out, ("tensor", "type", "shape (rows, columns)", "bytes"), item)


def _count_mtp_bytes(gguf: GGUFFile) -> int:
    """Return the bytes of the layers for next-token prediction, which a plain forward pass does not read."""
    layers = {name.rpartition(".nextn.")[0] for name in gguf.tensors if ".nextn." in name}
    return sum(t.nbytes for t in gguf.tensors.values() if ".".join(t.name.split(".")[:2]) in layers)


@dataclass(frozen=True, slots=True)
class _TensorClass:
    """Group tensors of the same name and type in all layers."""

    name: str
    dtype: str
    count: int
    shape: str
    size_bytes: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "class": self.name,
            "dtype": self.dtype,
            "count": self.count,
            "shape": self.shape,
            "bytes": self.size_bytes,
        }


def _group_tensors(gguf: GGUFFile) -> list[_TensorClass]:
    groups: dict[tuple[str, str], list[Tensor]] = {}
    for tensor in gguf.tensors.values():
        parts = tensor.name.split(".")
        name = ".".join("*" if part.isdecimal() else part for part in parts)
        groups.setdefault((name, tensor.dtype), []).append(tensor)
    return [
        _TensorClass(
            printable(name),
            dtype,
            len(group),
            " or ".join(dict.fromkeys(_format_shape(item.shape) for item in group)),
            sum(item.nbytes for item in group),
        )
        for (name, dtype), group in groups.items()
    ]


def _count_elements(tensor: Tensor) -> int:
    return math.prod(tensor.shape)


def _format_shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _format_value(value: object) -> str:
    """Format a metadata value on one line; of long arrays, only the first items."""
    if isinstance(value, str):
        return printable(value, WIDTH)
    if isinstance(value, bool | int | float):
        return str(value)
    items: list[Any] = list(value[:6])  # type: ignore[index]
    shown = ", ".join(printable(str(item), 24) for item in items)
    count = len(value)  # type: ignore[arg-type]
    return f"[{shown}]" if count <= len(items) else f"[{shown}, … {count:,} in all]"


def _describe_file(gguf: GGUFFile) -> dict[str, Any]:
    def to_plain(value: Any) -> Any:
        if isinstance(value, str | bool | int | float) or len(value) <= 64:
            return value
        return {"count": len(value), "first": list(value[:6])}

    return {
        "file_bytes": gguf.file_bytes,
        "parts": [
            {"path": str(part.path), "bytes": part.size_bytes, "tensors": len(part.tensors)} for part in gguf.parts
        ],
        "metadata": {key: to_plain(value) for key, value in gguf.metadata.items()},
        "parameters": sum(map(_count_elements, gguf.tensors.values())),
        "mtp_bytes": _count_mtp_bytes(gguf),
        "tensor_classes": [item.as_dict() for item in _group_tensors(gguf)],
        "tensors": [
            {"name": t.name, "dtype": t.dtype, "shape": t.shape, "bytes": t.nbytes} for t in gguf.tensors.values()
        ],
    }


# --- what it needs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MemoryNeeds:
    """The requirements of a model: its graph, the memory plan of one step, the memory of a context, and the
    traffic of a decoded token."""

    graph: OpGraph
    page_groups: tuple[PageGroupSpec, ...]
    state_layers: int
    state_row_bytes: int
    plan: MemoryPlan
    traffic: tuple[Traffic, ...]
    limits: SequenceLimits
    position: int
    residency: Residency | None = None  # on a GPU of the memory that was named
    products: tuple[ProductGroup, ...] = ()  # of a prompt, with --prefill-ordering

    @staticmethod
    def of(gguf: GGUFFile, arguments: argparse.Namespace, knobs: Settings) -> _MemoryNeeds:
        """Plan a model. Raise ZincError if there is nothing to plan, UsageError for a wrong option."""
        from zinc_rt.cli.options import print_status
        from zinc_rt.engine.engine import choose_default_ctx, format_ctx_warning
        from zinc_rt.engine.memory_fit import check_context_memory, count_step_tokens
        from zinc_rt.engine.resident import parse_capacity
        from zinc_rt.engine.variants import find_overrides
        from zinc_rt.ir.passes.matrix_cores import list_products, use_matrix_cores
        from zinc_rt.mem.context_bytes import count_recurrent_layers, count_state_row_bytes, groups_of
        from zinc_rt.mem.plan import plan_memory
        from zinc_rt.mem.traffic import list_decode_traffic
        from zinc_rt.model.builder import SequenceLimits
        from zinc_rt.model.registry import build_model

        if not gguf.tensors:
            raise InputError(
                f"{gguf.path}: the file contains a tokenizer but no tensors, so there is nothing to plan"
            )
        limits = SequenceLimits(
            choose_default_ctx(gguf, arguments.ctx), arguments.slots, kv_type=arguments.kv_type
        )
        if warning := format_ctx_warning(gguf, arguments.ctx):
            print_status(f"warning   {warning}")
        overrides = find_overrides(knobs)
        check_context_memory(gguf, limits, overrides=overrides, state=False)
        ahead = count_step_tokens(gguf, limits, arguments.lookahead) if arguments.lookahead else 1
        tokens = max(arguments.step_tokens, ahead)
        decode = build_model(gguf, limits, "decode", overrides=overrides)
        prompt = tokens > 1 or arguments.prefill_ordering
        model = build_model(gguf, limits, "prefill", overrides=overrides) if prompt else decode
        graph = model.graph
        if arguments.prefill_ordering:
            graph = use_matrix_cores(graph, arguments.prefill_ordering)
        plan = plan_memory(graph, capacity=parse_capacity((tokens, min(limits.slots, tokens), ahead)))
        position = limits.ctx - 1 if arguments.position is None else arguments.position
        if not 0 <= position < limits.ctx:
            raise UsageError(f"--position {position}: expected 0 to {limits.ctx - 1} (within the context)")
        return _MemoryNeeds(
            graph,
            groups_of(decode.graph),
            count_recurrent_layers(decode.graph),
            count_state_row_bytes(decode.graph),
            plan,
            list_decode_traffic(decode.graph, position=position),
            limits,
            position,
            _place_weights(model, tokens, ahead, arguments, knobs),
            tuple(list_products(model.graph)) if arguments.prefill_ordering else (),
        )

    def print(self, out: TextIO) -> None:
        terminal.show(f"\nmemory plan: {format_size(self.plan.total_bytes)}", out=out)
        tokens = self.plan.capacity["tokens"]
        terminal.show(
            f"for a context of {self.limits.ctx}, slots: {self.limits.slots}, tokens in a step: {tokens}", out=out
        )
        rows = [
            (heap, role, f"{payload:,}", f"{total - payload:,}", f"{total:,}")
            for heap, role, payload, total in self._list_heaps()
        ]
        _show_table(out, ("heap", "what", "bytes", "padding", "total"), rows)
        if self.residency is not None:
            terminal.show(f"\n{self.residency.text}", out=out)
        terminal.show("\nmemory of a context, F32", out=out)
        held = f"a sequence of {self.limits.ctx}"
        _show_table(
            out, ("", "layers", "a token", f"a page of {self.limits.page_tokens}", held), self._list_context_rows()
        )
        read, written = (sum(getattr(row, f"{way}_bytes") for row in self.traffic) for way in ("read", "written"))
        terminal.show(
            f"\none decoded token at position {self.position} reads {format_size(read)}, "
            f"writes {format_size(written)}",
            out=out,
        )
        moved = [
            (row.kind, row.name, row.dtype, f"{row.read_bytes:,}", f"{row.written_bytes:,}")
            for row in self.traffic
        ]
        _show_table(out, ("kind", "class", "type", "read", "written"), moved)

    def _list_heaps(self) -> list[tuple[str, str, int, int]]:
        """Return (heap, role, payload bytes, total bytes), one row for each role in each heap."""
        sums: dict[tuple[str, str], list[int]] = {}
        for name, allocation in self.plan.allocations.items():
            row = sums.setdefault((allocation.heap.value, name.partition("/")[0]), [0, 0])
            row[0] += allocation.payload_bytes
            row[1] += allocation.size_bytes
        return [(heap, role, payload, total) for (heap, role), (payload, total) in sorted(sums.items())]

    def _list_context_rows(self) -> list[tuple[str, ...]]:
        """Return a row for each page group, then one for the recurrent state."""
        text = replace(self.limits, slots=1)
        rows: list[tuple[str, ...]] = [
            (
                f"pages, {group.name}",
                str(group.layers),
                f"{group.bytes_per_token:,}",
                f"{group.count_page_bytes(self.limits.page_tokens):,}",
                f"{text.group_pages(number, group.window) * group.count_page_bytes(text.page_tokens):,}",
            )
            for number, group in enumerate(self.page_groups)
        ]
        if self.state_row_bytes:
            rows.append(("state row", str(self.state_layers), "-", "-", f"{self.state_row_bytes:,}"))
        return rows

    def details(self) -> dict[str, Any]:
        return {
            "context": {
                "page_tokens": self.limits.page_tokens,
                "page_groups": [
                    {**asdict(group), "page_bytes": group.count_page_bytes(self.limits.page_tokens)}
                    for group in self.page_groups
                ],
                "state_row_bytes": self.state_row_bytes,
            },
            "plan": {
                "slots": self.limits.slots,
                "capacity": dict(self.plan.capacity),
                "total_bytes": self.plan.total_bytes,
                "heaps": [
                    {"heap": heap, "what": role, "payload_bytes": payload, "total_bytes": total}
                    for heap, role, payload, total in self._list_heaps()
                ],
            },
            **({"weights": self.residency.as_dict()} if self.residency is not None else {}),
            "traffic": {
                "position": self.position,
                "read_bytes": sum(row.read_bytes for row in self.traffic),
                "written_bytes": sum(row.written_bytes for row in self.traffic),
                "classes": [asdict(row) for row in self.traffic],
            },
            **({"products": [asdict(item) for item in self.products]} if self.products else {}),
        }


def _place_weights(
    model: Model, tokens: int, rows: int, arguments: argparse.Namespace, knobs: Settings
) -> Residency | None:
    """Place the weights on a GPU of --vram bytes, packed as for the default chip. Raise InputError if they do not
    fit."""
    from zinc_rt.engine.memory_fit import fit_model
    from zinc_rt.engine.variants import find_overrides
    from zinc_rt.kernels.sets import find_code_chip, find_kernel_set

    kernels = find_kernel_set(find_code_chip(DEFAULT_ARCH))
    if arguments.vram is None or kernels is None:
        return None
    experts = arguments.experts or knobs.experts
    memory_bytes = int(arguments.vram * 1e9)
    return fit_model(
        model, kernels, memory_bytes, tokens=tokens, rows=rows, experts=experts, overrides=find_overrides(knobs)
    )


def _show_table(out: TextIO, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    body = [[str(cell) for cell in row] for row in rows]
    first = body[0] if body and headers else ["", ""]
    columns = [
        Column(name, right=cell.replace(",", "").isdecimal(), key=key)
        for name, key, cell in zip(headers or first, headers or ("key", "value"), first, strict=True)
    ]
    terminal.show(Table(columns, body, headings=bool(headers)), out=out)


main = Command("inspect", parser, _run_command)
