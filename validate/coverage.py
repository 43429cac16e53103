"""Coverage: which forms of nodes the product's commands compute, and which none does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.golden.odd_models import generate_odd_pair, load_odd_models
from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.terminal import Column, Page, Table, number_column
from zinc_rt.ir.dtypes import CACHE_TYPES, find_block
from zinc_rt.ir.graph import ABSENT, Node, OpGraph, Stage
from zinc_rt.ir.op import OPS, OpSpec
from zinc_rt.ir.passes.fuse import fuse_graph
from zinc_rt.ir.shapes import ShapeError, Value, unify_shape
from zinc_rt.kernels.cases import Case
from zinc_rt.kernels.sets import SETS, KernelSet, find_kernel_set
from zinc_rt.lower.lower import find_refusal
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model
from zinc_rt.validate.cases.sweep import BLOCKS_OF_32, BLOCKS_OF_256, OTHERS, PLAIN
from zinc_rt.validate.cases.table import FAMILIES, family_cases
from zinc_rt.validate.kernel_test.select import plan_cases
from zinc_rt.validate.kernel_test.support import LEFT_OUT, has_weight_matrices, is_weight_matrix

VALIDATE = "zinc-rt validate --tiers t1,t_cpu"
MODELS = "zinc-rt selftest --models"
FIRST, SECOND = "canonical-1", "canonical-1-q8"
INTEGERS = (*BLOCKS_OF_32, *BLOCKS_OF_256)
STAGES: tuple[Stage, ...] = ("prefill", "decode")
ANY = "any"  # the class that every node of an opcode has
WIDTHS = ("D", "K", "N", "F", "Q", "V", "I", "C", "rest", "size", "head_dim", "value_dim", "latent")


@dataclass(frozen=True, slots=True, order=True)
class NodeForm:
    """A class of nodes. `part`: a class of an attribute, an operand or a size, or several that a model's graph
    combines; `dtype`: the type of weight matrices, empty without any."""

    op: str
    part: str
    dtype: str
    ordering: str


@dataclass(frozen=True)
class FormCoverage:
    """`reached`: the first command that computes each form, empty for none. `reasons`: why some need none."""

    reached: Mapping[NodeForm, str]
    reasons: Mapping[NodeForm, str]

    @cached_property
    def holes(self) -> list[NodeForm]:
        """Return the forms that no command computes although one should."""
        return sorted(form for form, by in self.reached.items() if not by and form not in self.reasons)


def measure_coverage(say: Callable[[str], None] = lambda text: None) -> FormCoverage:
    """Return every form of every opcode, and the first command that computes it. `say` is told each stage."""
    reached: dict[NodeForm, str] = {}
    combined: dict[NodeForm, str] = {}
    say("graphs of the models of validate and selftest")
    for command, graphs in ((VALIDATE, _list_quick_graphs()), (MODELS, _list_odd_graphs())):
        for form in {form for graph in graphs for form in list_graph_forms(graph)}:
            reached.setdefault(form, command)
    say("cases of kernel-test")
    for form, command in list_case_forms():
        reached.setdefault(form, command)
    say("graphs of every architecture")
    for graph in _list_architecture_graphs():
        for form in {_combine(node, graph) for node in graph.nodes if node.op not in LEFT_OUT}:
            combined[form] = reached.get(form, "")
    wanted = {
        form: reached.get(form, "")
        for form in list_forms({form.op for form in reached if form.ordering == SECOND})
    }
    every = {**wanted, **combined}
    reasons = {form: why for form, by in every.items() if not by and (why := find_reason(form))}
    return FormCoverage(every, reasons)


# --- what there is -------------------------------------------------------------------------------------------


def list_forms(second: Container[str]) -> Iterator[NodeForm]:
    """Return every class of each attribute, operand and size, with each type of weights that it can have; of a
    type whose weights are expanded when they are loaded, one form. `second`: names of the opcodes that the second
    ordering computes by kernels of its own, for types of integers.
    """
    for op, spec in OPS.items():
        if op in LEFT_OUT:
            continue
        parts = tuple(dict.fromkeys(list_parts(spec)))
        if not has_weight_matrices(op):
            yield from (NodeForm(op.name, part, "", FIRST) for part in parts or (ANY,))
            continue
        yield from (NodeForm(op.name, ANY, dtype, FIRST) for dtype in OTHERS)
        for dtype in (*PLAIN, *INTEGERS):
            possible = [part for part in parts if part not in _list_impossible(spec, dtype)]
            for ordering in (FIRST, SECOND) if dtype in INTEGERS and op.name in second else (FIRST,):
                yield from (NodeForm(op.name, part, dtype, ordering) for part in possible)


def _list_impossible(spec: OpSpec, dtype: str) -> set[str]:
    """Return the classes of sizes whose rows are not whole blocks of a type."""
    if find_block(dtype)[0] % 64:
        return set()
    return {f"{port.shape[-1]} not in 64s" for port in spec.inputs if is_weight_matrix(port)}


def list_parts(spec: OpSpec) -> Iterator[str]:
    """Return every class of the attributes, operands and sizes of an opcode."""
    for attr in spec.attrs:
        if attr.choices or attr.type is bool:
            yield from (f"{attr.name}={value}" for value in attr.choices or (False, True))
        elif attr.default is not None and attr.type is int:
            yield from (f"{attr.name}={attr.default}", f"{attr.name}>{attr.default}")
    for port in spec.inputs:
        if port.optional:
            yield from (f"with {port.name}", f"without {port.name}")
    if any(port.kind == "cache" for port in spec.inputs):
        yield from (f"cache={name}" for name in CACHE_TYPES)
    yield from dict.fromkeys(part for name in _list_sizes(spec) for part in _SIZES.get(name, ()))


def _list_sizes(spec: OpSpec) -> Iterator[str]:
    """Return the names of sizes of an opcode: its attributes and the names of whole dimensions."""
    yield from (attr.name for attr in spec.attrs)
    yield from (part for port in (*spec.inputs, *spec.outputs) for part in port.shape)


_SIZES = {
    "T": ("T=1", "T>1"),
    "S": ("S=1", "S>1"),
    "L": ("L=1", "L>1"),
    "kv_heads": ("one kv head", "group = kv heads", "group differs from kv heads"),
    "window": ("window within a page", "window beyond a page"),
    **{name: (f"{name} in 64s", f"{name} not in 64s") for name in WIDTHS},
}


def classify(spec: OpSpec, attrs: Mapping[str, Any], absent: Iterable[str], caches: str) -> Iterator[str]:
    """Return the classes of a node's attributes and operands. `absent`: names of ports; `caches`: their type."""
    for attr in spec.attrs:
        value = attrs.get(attr.name, attr.default)
        if attr.choices or attr.type is bool:
            yield f"{attr.name}={value}"
        elif attr.default is not None and attr.type is int:
            yield f"{attr.name}{'=' if value == attr.default else '>'}{attr.default}"
    without = set(absent)
    for port in spec.inputs:
        if port.optional:
            yield f"{'without' if port.name in without else 'with'} {port.name}"
    if any(port.kind == "cache" for port in spec.inputs):
        yield f"cache={caches}"


def classify_sizes(spec: OpSpec, sizes: Mapping[str, Value]) -> Iterator[str]:
    """Return the classes of a node's sizes. A symbol, whose value a step gives, is 1 in one step and more in
    another; sequences are validated one at a time."""
    for name in dict.fromkeys(_list_sizes(spec)):
        size = sizes.get(name)
        if name in ("T", "L", "S") and size is not None:
            single = size == 1 or name == "S" if isinstance(size, str) else size == 1
            yield from (f"{name}=1",) if single else (f"{name}>1",) if not isinstance(size, str) else _SIZES[name]
        elif name == "kv_heads" and isinstance(size, int):
            heads = sizes["heads"]
            assert isinstance(heads, int)
            same = "group = kv heads" if heads == size * size else "group differs from kv heads"
            yield from ("one kv head",) if size == 1 else (same,)
        elif name == "window" and isinstance(size, int) and size:
            page = sizes.get("page_tokens", 16)
            yield "window within a page" if isinstance(page, int) and size <= page else "window beyond a page"
        elif name in WIDTHS and isinstance(size, int):
            yield f"{name} in 64s" if size % 64 == 0 else f"{name} not in 64s"


# --- what graphs and cases have ------------------------------------------------------------------------------


def list_graph_forms(graph: OpGraph) -> Iterator[NodeForm]:
    for node in graph.nodes:
        if node.op not in LEFT_OUT:
            yield _combine(node, graph)
            parts = (*_classify_node(node, graph), *classify_sizes(OPS[node.op], _bind_sizes(node, graph)))
            for dtype in _list_types(node, graph):
                yield from (NodeForm(node.op.name, part, dtype, FIRST) for part in (ANY, *parts))


def _classify_node(node: Node, graph: OpGraph) -> Iterator[str]:
    ports = list(zip(OPS[node.op].inputs, node.inputs, strict=False))
    caches = [graph.buffers[name].dtype for port, name in ports if port.kind == "cache"]
    absent = [port.name for port, name in ports if name == ABSENT]
    return classify(OPS[node.op], node.attrs, absent, caches[0] if caches else "")


def _combine(node: Node, graph: OpGraph) -> NodeForm:
    """Return all classes of a node's attributes and operands as one form."""
    return NodeForm(node.op.name, ", ".join(_classify_node(node, graph)) or "plain", "", FIRST)


def _list_types(node: Node, graph: OpGraph) -> set[str]:
    if not has_weight_matrices(node.op):
        return {""}
    ports = zip(OPS[node.op].inputs, node.inputs, strict=False)
    return {graph.buffers[name].dtype for port, name in ports if name != ABSENT and is_weight_matrix(port)}


def _bind_sizes(node: Node, graph: OpGraph) -> dict[str, Value]:
    spec = OPS[node.op]
    names: dict[str, Value] = {
        a.name: v for a in spec.attrs if type(v := node.attrs.get(a.name, a.default)) is int
    }
    for port, name in zip((*spec.inputs, *spec.outputs), (*node.inputs, *node.outputs), strict=False):
        if name != ABSENT:
            try:
                unify_shape(port.shape, graph.buffers[name].shape, names)
            except ShapeError:
                continue
    return names


def list_case_forms() -> Iterator[tuple[NodeForm, str]]:
    """Return the forms of the cases of kernel-test, each with the command that runs its family."""
    for family in FAMILIES:
        command = f"zinc-rt kernel-test --family {family}"
        cases = list(family_cases(family))
        taken: dict[str, set[int]] = {FIRST: set(), SECOND: set()}
        for kernels in _list_kernel_sets():
            first, second = (plan_cases(cases, kernels, ordering) for ordering in (FIRST, SECOND))
            taken[FIRST] |= {at for at, plan in enumerate(first) if plan.kernels}
            taken[SECOND] |= {
                at for at, plan in enumerate(second) if plan.kernels and plan.kernels != first[at].kernels
            }
        for ordering, numbers in taken.items():
            for at in numbers:
                yield from ((form, command) for form in _list_case_forms(cases[at], ordering))


def _list_case_forms(case: Case, ordering: str) -> Iterator[NodeForm]:
    spec = OPS[case.op]
    parts = list(classify(spec, case.attrs, case.without, case.kv))
    yield NodeForm(case.op.name, ", ".join(parts) or "plain", "", FIRST)
    parts += classify_sizes(spec, case.names)
    dtype = case.dtype if has_weight_matrices(case.op) else ""
    yield from (NodeForm(case.op.name, part, dtype, ordering) for part in (ANY, *parts))


# --- graphs --------------------------------------------------------------------------------------------------


def _list_quick_graphs() -> Iterator[OpGraph]:
    odd = (generate_odd_pair(row) for row in load_odd_models() if row.quick)
    for pair in (*list_embedded_pairs(), *odd):
        yield from _build_graphs(pair.model)


def _list_odd_graphs() -> Iterator[OpGraph]:
    for row in load_odd_models():
        yield from _build_graphs(generate_odd_pair(row).model)


def _list_architecture_graphs() -> Iterator[OpGraph]:
    """Return the graphs of a small model of every architecture."""
    with TemporaryDirectory() as folder:
        for name in ARCHITECTURES:
            path = Path(folder) / f"{name}.gguf"
            write_tiny(path, name, quant="q", hidden=256, vocab=1100)
            yield from _build_graphs(path)


def _build_graphs(path: Path) -> Iterator[OpGraph]:
    """Return a model's graphs of prompts and of decoding, each also as it is fused for each kernel set that
    fuses."""
    gguf = read_gguf(path)
    for stage in STAGES:
        graph = build_model(gguf, SequenceLimits(ctx=256), stage).graph
        yield graph
        for kernels in _list_kernel_sets():
            if kernels.fuses:
                yield fuse_graph(graph, partial(_is_supported, kernels))


def _list_kernel_sets() -> Iterator[KernelSet]:
    """Return every set but the oracle's, which is compared with nothing."""
    for name in SETS:
        kernels = find_kernel_set(name)
        if kernels is not None and kernels.target != "numpy-reference":
            yield kernels


def _is_supported(kernels: KernelSet, node: Node, graph: OpGraph) -> bool:
    return find_refusal(node, graph, kernels.entries, FIRST) is None


# --- results -------------------------------------------------------------------------------------------------

# (opcodes, classes, why no command needs to compute them)
REASONS = (
    ("*_WMMA_*", "*", "only prompts with --prefill-ordering have the opcode"),
    ("*CONV1D*", "K in 64s", "K is the number of taps of a convolution, 4 in models"),
    ("SSM_SCAN", "N in 64s", "N is the number of states of a channel, 16 in models"),
    ("VERIFY_K", "K in 64s", "K is the number of drafted tokens"),
)


def find_reason(form: NodeForm) -> str:
    """Return why no command needs to compute a form, empty if one should."""
    rows = (why for op, part, why in REASONS if fnmatchcase(form.op, op) and fnmatchcase(form.part, part))
    return next(rows, "")


def format_coverage(coverage: FormCoverage, *, verbose: bool) -> Page:
    """Return a table of the opcodes, the reasons and the holes; with `verbose`, each form and its command."""
    by_op: dict[str, list[NodeForm]] = defaultdict(list)
    for form in sorted(coverage.reached):
        by_op[form.op].append(form)
    parts: list[str | Table] = [Table(_COLUMNS, [_format_op(coverage, op, by_op[op]) for op in sorted(by_op)]), ""]
    if verbose:
        rows = [
            (*astuple(form), by or coverage.reasons.get(form, "HOLE")) for form, by in coverage.reached.items()
        ]
        parts += [Table(("opcode", "class", "type", "ordering", "computed by"), sorted(rows)), ""]
    for why in dict.fromkeys(coverage.reasons.values()):
        forms = [form for form, reason in coverage.reasons.items() if reason == why]
        names = ", ".join(sorted({form.op for form in forms}))
        parts.append(f"left out   {len(forms)} forms of {names}: {why}")
    parts += [f"HOLE       {form.op}: {form.part} {form.dtype} {form.ordering}" for form in coverage.holes]
    return Page(parts)


_COLUMNS: tuple[str | Column, ...] = (
    "opcode",
    *map(number_column, ("classes", "types", "forms", "validate", "selftest", "kernel-test", "holes")),
)


def _format_op(coverage: FormCoverage, op: str, forms: Sequence[NodeForm]) -> list[object]:
    by = [coverage.reached[form].partition(" --")[0] for form in forms]
    holes = sum(form in coverage.holes for form in forms)
    counts = [by.count(f"zinc-rt {name}") for name in ("validate", "selftest", "kernel-test")]
    classes, types = {form.part for form in forms}, {form.dtype for form in forms} - {""}
    return [op, len(classes), len(types) or "", len(forms), *counts, holes or ""]
