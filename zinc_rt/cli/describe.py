"""Describe the model, the device and the arithmetic in a report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.options import print_status
from zinc_rt.cli.progress import show_progress
from zinc_rt.cli.report import Result
from zinc_rt.host.errors import format_findings
from zinc_rt.host.machine import describe_host
from zinc_rt.host.version import digest_runtime
from zinc_rt.ir.op import Op
from zinc_rt.ir.passes.matrix_cores import count_products
from zinc_rt.kernels.rows.expand import ExpandedType, list_expanded_types
from zinc_rt.model.gguf import digest_model
from zinc_rt.model.identity import identify_model

if TYPE_CHECKING:
    from zinc_rt.backends.base import Finding
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.engine import Engine
    from zinc_rt.engine.resident import Variant
    from zinc_rt.ir.graph import OpGraph
    from zinc_rt.model.gguf import GGUFFile


def describe_model(gguf: GGUFFile) -> dict[str, Any]:
    """Describe a model file by its digest and shape. Read the whole file once."""
    with show_progress(gguf.file_bytes, "digest", "B") as advance:
        sha256 = digest_model(gguf, advance=advance)
    return {"path": str(gguf.path), "digest": sha256, **identify_model(gguf).as_dict()}


def describe_run(report: Report, engine: Engine) -> None:
    """Add the device, its host, the ordering, the context, the settings with their clamps, the code version, and
    the parts of the model that have run; `describe_executed` updates these at the end.
    """
    tier = engine.backend.spec.tier
    report.device = {"tier": tier, **asdict(engine.backend.device)}
    report.ordering = engine.ordering
    report.ctx = engine.limits.ctx
    report.details |= {"code": digest_runtime(), "settings": asdict(engine.settings), "host": describe_host()}
    unchecked = engine.backend.device.unchecked
    report.shortcuts = [*engine.settings.list_shortcuts(), *([unchecked] if unchecked else [])]
    report.direct_compute_kind = engine.backend.kernels.target
    if prefill := engine.variants.prefill_ordering:
        report.details["prefill"] = describe_prefill(engine.model.graph, prefill)
    if residency := engine.variants.residency:
        report.details["weights"] = residency.as_dict()
    if expanded := count_expanded_weights(engine):
        report.details["expanded"] = [asdict(item) for item in expanded]
    describe_executed(report, engine)


def count_expanded_weights(engine: Engine) -> tuple[ExpandedType, ...]:
    """Return the weights that the tier's kernels read in another type, by type."""
    return list_expanded_types(engine.backend.kernels.expansions, engine.model.weights.values())


def describe_prefill(graph: OpGraph, ordering: str) -> dict[str, Any]:
    """Return the prefill ordering of a model's graph, the number of products in it, and of others by reason."""
    others = count_products(graph)
    return {"ordering": ordering, "products": others.pop("", 0), "others": others}


def format_prefill(described: Mapping[str, Any]) -> str:
    """Return one line for `describe_prefill`."""
    others = "".join(f"; {count} not: {reason}" for reason, count in described["others"].items())
    return f"{described['products']} products in {described['ordering']}{others}"


@dataclass(slots=True)
class DrawCounts:
    """Return where tokens were sampled: by the tier (`device`), or from logits read by the host (`host`)."""

    device: int = 0
    host: int = 0

    @property
    def text(self) -> str:
        parts = ((self.device, "by the device"), (self.host, "on the host, from logits that it read"))
        return ", ".join(f"{count} {where}" for count, where in parts if count) or "none"


def describe_executed(report: Report, engine: Engine, drawn: DrawCounts | None = None) -> None:
    """Add the fraction of the model that the tier ran, counted from completed replays, and where tokens were
    sampled."""
    tier = engine.backend.spec.tier
    programs = [_describe_program(variant) for variant in engine.variants.ran()]
    decode = [program for program in programs if program.stage == "decode"]
    maximum = max(decode or programs, key=lambda item: item.nodes, default=None)
    report.direct_compute_ops = 0 if maximum is None else maximum.nodes
    report.model_execution = (
        f"{tier}: nothing ran here; its values are cached from an earlier run"
        if maximum is None
        else f"{tier}: {maximum.nodes} of {maximum.of} nodes of {maximum.graph}, in {engine.backend.ordering}"
    )
    report.details["programs"] = [asdict(program) for program in programs]
    if drawn is not None:
        report.details["sampled"] = asdict(drawn)


@dataclass(frozen=True, slots=True)
class _ExecutedProgram:
    """A program that was replayed completely: the tier computed `nodes` of the `of` nodes of the graph."""

    graph: str
    stage: str
    key: tuple[int, ...]
    nodes: int
    of: int


def _describe_program(variant: Variant) -> _ExecutedProgram:
    graph = variant.graph
    of = sum(node.op is not Op.BARRIER for node in graph.nodes)
    return _ExecutedProgram(graph.name, graph.stage, variant.key, len(variant.built.nodes), of)


def fail_for_findings(report: Report, findings: Sequence[Finding], model: str) -> None:
    """Fail a report for findings of a simulated device, whose results may be wrong, and show their number, the
    first one and the next command on stderr. Call it last: these lines are the verdict.
    """
    if not findings:
        return
    tier = str(report.device["tier"])
    repro = f"zinc-rt validate --model {shlex.quote(model)} --tiers {tier}"
    report.details["findings"] = [finding.text for finding in findings]
    report.results.append(
        Result(
            "sanitizer",
            "sanitizer",
            "fail",
            tier=tier,
            reference="the rules of its sanitizer",
            measure={"findings": len(findings)},
            limit={"findings": 0},
            first_bad=describe_finding(findings[0]),
            cause=findings[0].text,
            repro=repro,
        )
    )
    print_status(f"FAIL      {format_findings(findings)}; the results may be wrong")
    print_status(f"next      {repro}")


def describe_finding(finding: Finding) -> dict[str, Any]:
    """Return a finding as a dictionary for a report."""
    facts = {
        "node": finding.node.label if finding.node is not None else "",
        "kernel": finding.kernel,
        "source": finding.source,
        "instruction": finding.instruction,
    }
    return {"finding": finding.text, **{name: fact for name, fact in facts.items() if fact}}
