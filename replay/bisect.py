"""Locate the first divergence of a tier from T-CPU in a recorded run: the step, the node, the element.

Both tiers replay the log in parallel from the same state, until an output or the state differs after a
step, or a step was not given what its scheduler had planned. The former step is repeated with every node's
result kept. If only the graph that reuses memory differs, a growing or shrinking part of it is run until the
smallest differing part is known, each time from the step's initial state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.backends.amd.hang import Hang
from zinc_rt.backends.base import Finding
from zinc_rt.engine.devices import ORACLE, Choice
from zinc_rt.engine.resident import KEPT, Variant, port_name
from zinc_rt.exec import DeadlineMissed
from zinc_rt.host.errors import InputError, ZincError, error_first_line
from zinc_rt.ir.graph import Node, OpGraph
from zinc_rt.ir.passes.split import replace_node, split_part
from zinc_rt.ir.verify import verify_graph
from zinc_rt.kernels.launch import list_kernel_names
from zinc_rt.lower import Call, LoweredGraph
from zinc_rt.replay.bisect_result import BisectResult, FailingNode
from zinc_rt.replay.run import find_unequal_output, select_steps
from zinc_rt.trace.plans import find_plan_differences, require_draws
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.rebuilt import ARENA_SEEN, Opener, RebuiltModel, make_opener, read_value
from zinc_rt.trace.tape import RecordedStep, Tape, read_tape, require_inputs
from zinc_rt.trace.weight_sources import find_graph_differences, find_sources

FIRST = "is the first that differs"
LEFT_BEHIND = ("activation", "output", *KEPT)


def bisect(
    log_path: str | Path,
    choice: Choice | Opener,
    *,
    model: str | Path | None = None,
    until: int | None = None,
    threads: int = 0,
    timeout_seconds: float | None = None,
) -> BisectResult:
    """Locate the first divergence between the tier `choice` and T-CPU. Raises the errors of `replay`."""
    with LogReader(log_path) as log, ExitStack() as stack:
        tape = read_tape(log)
        require_inputs(log, tape)
        require_draws(log, tape)
        sources = find_sources(log, tape, model)
        suspect = stack.enter_context(
            RebuiltModel(
                log,
                tape,
                sources,
                make_opener(choice, threads=threads),
                tapped=False,
                heaps=ARENA_SEEN,
                timeout_seconds=timeout_seconds,
            )
        )
        oracle = stack.enter_context(
            RebuiltModel(log, tape, sources, make_opener(ORACLE, threads=threads), tapped=True)
        )
        search = _BisectSearch(tape, suspect, oracle, find_plan_differences(log, tape))
        try:
            search.compare_graphs(find_graph_differences(log, tape, model))
        except InputError as error:
            search.compare_graphs({}, missing=error_first_line(error))
        return search.run(select_steps(tape, until, 0))


class _UnfinishedStep(Exception):
    """A replay of a step that is known to differ ended with a different error."""


class _BisectSearch:
    def __init__(
        self, tape: Tape, suspect: RebuiltModel, oracle: RebuiltModel, departures: dict[int, str]
    ) -> None:
        self.tape = tape
        self.suspect = suspect
        self.oracle = oracle
        self.departures = departures  # by step
        self.found = BisectResult(suspect.backend.spec.tier)
        self._known = set(suspect.findings())  # others may share the device

    def compare_graphs(self, differences: dict[int, str], missing: str = "") -> None:
        """Note the first difference of a recorded graph from the model's own, which no replay shows: both tiers
        run the recorded one. `missing`: why there is none to compare with."""
        if missing:
            self._add_line(f"graphs are not compared with the model's own: {missing}")
        for text in differences.values():
            self._add_line(f"graph {text}")
        self.found.graph = next(iter(differences.values()), "")

    def run(self, steps: list[RecordedStep]) -> BisectResult:
        difference = self.found
        nodes = sum(len(self.oracle.variant(step.graph, step.key).program.calls) for step in steps)
        difference.allowed = max(2, int(2 * math.log2(max(2, nodes))))
        difference.replays = 2  # of the log, side by side
        for step in steps:
            if text := self.departures.get(step.number):
                self._stop_at(step, "was not given what was planned", text, len(steps))
                break
            before = self.oracle.state(self.oracle.variant(step.graph, step.key))
            right = self.oracle.run(step)
            if not self.found.recorded and (other := find_unequal_output(step, right)):
                self.found.recorded = f"step {step.number} had other bits in {other}"
            try:
                wrong = self.suspect.run(step)
            except Exception as error:
                self.suspect.lost = True
                self._stop_at(step, "does not end", error_first_line(error), len(steps))
                self._report_unfinished(step, right, before, error)
                break
            finding, diverged = self._take_new_finding(), self._find_divergence(step, right, wrong)
            if finding is not None:
                self._stop_at(step, FIRST, f"the simulated device found: {finding.text}", len(steps))
            elif diverged:
                self._stop_at(step, FIRST, diverged, len(steps))
            if difference.failed:
                self._search_step(step, right, before, finding)
                break
        else:
            self._add_line(f"not reproduced: all {len(steps)} steps have t_cpu's bits")
            if self.found.recorded:
                self._add_line(f"when it was recorded, {self.found.recorded}")
        self._add_line(f"{difference.replays} replays, at most {difference.allowed} for {nodes} nodes")
        return difference

    def _stop_at(self, step: RecordedStep, how: str, cause: str, steps: int) -> None:
        self.found.step, self.found.cause = step.number, f"{how}: {cause}"
        self._add_line(f"step {step.number} of {steps} {self.found.cause}")

    def _find_divergence(self, step: RecordedStep, right: Variant, wrong: Variant) -> str:
        """Return the first output, or else the first state, that differs from T-CPU; "" if all are equal."""
        for spec in right.graph.by_role("output"):
            if not _has_same_bits(read_value(right, spec.name, step), read_value(wrong, spec.name, step)):
                return f"{spec.name} has other bits"
        have = self.suspect.state(wrong)
        other = (name for name, content in self.oracle.state(right).items() if have.get(name) != content)
        return next((f"{name} has other bits" for name in other), "")

    def _take_new_finding(self) -> Finding | None:
        """Return the first finding of the simulated device since the last call. A finding is reported only once
        over all replays.
        """
        findings = self.suspect.findings()
        new = next((finding for finding in findings if finding not in self._known), None)
        self._known.update(findings)
        return new

    def _search_step(
        self, step: RecordedStep, right: Variant, before: dict[str, bytes], finding: Finding | None
    ) -> None:
        """The step is already known to differ, so a replay that fails does not change the result."""
        try:
            self._search_inside(step, right, before, finding)
        except _UnfinishedStep as error:
            self._add_line(f"a replay of the step does not end: {error}")
        if self.found.where is None:
            self._add_line("no node could be named")

    def _search_inside(
        self, step: RecordedStep, right: Variant, before: dict[str, bytes], finding: Finding | None
    ) -> None:
        second = self._rerun(step, before, self.suspect.other(step, tapped=True))
        finding = finding or self._take_new_finding()
        tapped = self._find_first(step, right, second)
        if tapped is not None:
            self._name_node(step, right, second, before, *tapped, tapped=True, finding=finding)
            return
        self._add_line(
            "with every node's result kept there is no difference: running parts of the graph that reuses memory"
        )
        self._search_parts(step, right, before, finding)

    def _report_unfinished(
        self, step: RecordedStep, right: Variant, before: dict[str, bytes], error: Exception
    ) -> None:
        """Name the node at which the step stopped, if the tier can determine it."""
        wrong = self.suspect.variant(step.graph, step.key)
        faults = error.report.faults if isinstance(error, Hang) else ()
        fault = next((fault.seen for fault in faults if fault.seen is not None), None)
        if fault is not None:
            self._add_line("page fault, as reported by the simulated device:")
            self.found.lines += [f"  {line}" for line in fault.lines()]
        index = _find_call(wrong.program, error.node if isinstance(error, DeadlineMissed) else None)
        if index < 0:
            self._add_line("the tier cannot report the node")
            return
        node = wrong.program.calls[index].node
        self.found.where = FailingNode(
            step.number,
            step.graph,
            step.key,
            index,
            node.label,
            node.op.name,
            node.outputs[0],
            tapped=True,
            kernels=_list_kernels(wrong.program.calls[index], wrong),
            finding=error_first_line(error),
            fault=asdict(fault) if fault is not None else {},
        )
        self.found.before = before
        self.found.given, self.found.made = self._read_operands(step, right, node, before, tapped=True)
        self._add_line(f"node {index} of {len(right.program.calls)}: {node!r} does not end")

    def _rerun(self, step: RecordedStep, before: dict[str, bytes], variant: Variant) -> Variant:
        self.found.replays += 1
        try:
            self.suspect.restore(variant, before)
            return self.suspect.run(step, variant)
        except Exception as error:
            self.suspect.lost = True
            raise _UnfinishedStep(error_first_line(error)) from error

    def _search_parts(
        self, step: RecordedStep, right: Variant, before: dict[str, bytes], finding: Finding | None
    ) -> None:
        """Find the shortest part of the program that reproduces the difference, else the node that the finding
        names.
        """
        program = self.suspect.variant(step.graph, step.key).program
        shown: dict[int, tuple[int, str, Variant, Finding | None]] = {}

        def has_difference(count: int) -> bool:
            variant = self._rerun(step, before, self.suspect.other(step, steps=count))
            new = self._take_new_finding()
            first = self._find_first(step, right, variant, tuple(_list_reliable_results(variant.program)))
            if first is None and new is None:
                return False
            last = len(variant.program.calls) - 1  # whatever is spoilt, this call spoilt it
            name = first[1] if first is not None else variant.program.calls[last].node.outputs[0]
            shown[count] = last, name, variant, new
            return True

        counts = [index + 1 for index, item in enumerate(program.steps) if isinstance(item, Call)]
        count = _find_smallest_failing(counts, has_difference)
        if count is not None:
            index, name, variant, new = shown[count]
            self._name_node(step, right, variant, before, index, name, tapped=False, finding=new or finding)
            return
        index = _find_call(program, finding.node if finding is not None else None)
        if index >= 0:
            variant = self._rerun(step, before, self.suspect.other(step, steps=counts[index]))
            name = program.calls[index].node.outputs[0]
            self._name_node(step, right, variant, before, index, name, tapped=False, finding=finding)

    def _find_first(
        self, step: RecordedStep, right: Variant, wrong: Variant, look: Sequence[tuple[int, str]] | None = None
    ) -> tuple[int, str] | None:
        """Return the first node in the graph's order with a differing result, and that result."""
        for index, name in look if look is not None else _list_results(wrong.program):
            if not _has_same_bits(read_value(right, name, step), read_value(wrong, name, step)):
                return index, name
        return None

    def _name_node(
        self,
        step: RecordedStep,
        right: Variant,
        wrong: Variant,
        before: dict[str, bytes],
        index: int,
        name: str,
        *,
        tapped: bool,
        finding: Finding | None = None,
    ) -> None:
        call = wrong.program.calls[index]
        want, got = read_value(right, name, step).copy(), read_value(wrong, name, step).copy()
        bad = np.flatnonzero(_view_bits(want) != _view_bits(got))
        element = tuple(int(part) for part in np.unravel_index(int(bad[0]), want.shape)) if bad.size else None
        where = self.found.where = FailingNode(
            step.number,
            step.graph,
            step.key,
            index,
            call.node.label,
            call.node.op.name,
            name,
            tapped,
            element,
            str(want[element]) if element is not None else "",
            str(got[element]) if element is not None else "",
            int(bad.size),
            int(want.size),
            _list_kernels(call, wrong),
            finding.text if finding is not None else "",
            self._find_last_store(step, wrong, before, name, int(bad[0])) if bad.size else {},
        )
        self.found.before = before
        self.found.given, self.found.made = self._read_operands(step, right, call.node, before, tapped=tapped)
        self._add_line(f"node {index} of {len(right.program.calls)}: {call.node!r}, result {name}")
        if element is not None:
            where_text = ", ".join(map(str, element))
            self._add_line(
                f"element [{where_text}] is {where.got}, t_cpu has {where.want}; {bad.size} of {want.size} differ"
            )
        for weight, at in self.suspect.spoilt(call.node):
            self._add_line(
                f"its {weight} on the device is not what was uploaded, first at byte {at}: suspect the upload, or "
                "a stray store, before the kernel"
            )
        if where.stored:
            stored = where.stored
            self._add_line(
                f"stored by {stored['kernel']}, workgroup {stored['group']}, wave {stored['wave']}, lane "
                f"{stored['lane']}, pc {stored['pc']:#x}: {stored['instruction']}"
            )
        elif where.kernels:
            self._add_line(f"kernels {', '.join(where.kernels)}")
        if tapped and bad.size:
            self._search_fusion(step, call.node, before)

    def _search_fusion(self, step: RecordedStep, node: Node, before: dict[str, bytes]) -> None:
        """Split one part after another off a fused node, until the rest and the parts have T-CPU's bits: then the
        fused kernel computes the last part otherwise."""
        graph, different = self.tape.graphs[step.graph].graph, node
        while split := split_part(different, graph):
            at = next(index for index, item in enumerate(graph.nodes) if item is different)
            graph = replace_node(graph, at, split)
            try:
                first = self._find_first_part(step, graph, split.nodes, before)
            except ZincError as error:
                self._add_line(f"its parts cannot run as nodes of their own: {error_first_line(error)}")
                return
            if first is None:
                self._name_part(split.part, f"with its {split.part} split off, it has t_cpu's bits")
                return
            different = first
        if different is not node:
            self._name_part(different.op.name, f"split into its parts, {different.op.name} differs first")

    def _find_first_part(
        self, step: RecordedStep, graph: OpGraph, parts: Sequence[Node], before: dict[str, bytes]
    ) -> Node | None:
        """Run the step on both tiers with a graph in which a node is split. Return the first part that differs."""
        verify_graph(graph)
        right = self.oracle.other(step, graph=graph, tapped=True)
        self.oracle.restore(right, before)
        self.oracle.run(step, right)
        self.found.allowed += 1
        wrong = self._rerun(step, before, self.suspect.other(step, graph=graph, tapped=True))
        calls, numbers = wrong.program.calls, {id(part) for part in parts}
        results = [
            (index, name) for index, name in _list_results(wrong.program) if id(calls[index].node) in numbers
        ]
        first = self._find_first(step, right, wrong, results)
        return None if first is None else calls[first[0]].node

    def _name_part(self, part: str, line: str) -> None:
        assert self.found.where is not None
        self.found.where = replace(self.found.where, part=part)
        self._add_line(line)

    def _find_last_store(
        self, step: RecordedStep, variant: Variant, before: dict[str, bytes], name: str, element: int
    ) -> dict[str, Any]:
        """Find the last store to an element on a simulated device by running the step again with a watch."""
        placement = variant.plan.placements[name]
        buffer = variant.replays.ports[port_name(placement.allocation, variant.key)]
        instrument = self.suspect.backend.instrument
        if instrument is None:
            return {}
        instrument.set_watchpoint(buffer, placement.offset_bytes + 4 * element, 4)
        try:
            self._rerun(step, before, variant)
        except _UnfinishedStep as error:
            self._add_line(f"watched, the step does not end: {error}")
            return {}
        stores = instrument.watchpoint_hits()
        instrument.set_watchpoint(buffer, 0, 0)
        if not stores:
            self._add_line(f"no wave stored element {element} of {name}")
            return {}
        last = stores[-1]
        return {
            "kernel": last.kernel,
            "group": list(last.group),
            "wave": last.wave,
            "lane": last.lane,
            "pc": last.pc,
            "instruction": last.instruction,
            "value": last.value,
            "stores": len(stores),
        }

    def _read_operands(
        self, step: RecordedStep, right: Variant, node: Node, before: dict[str, bytes], *, tapped: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the inputs and outputs of T-CPU's node, with in-place state as it was before the step. Without
        taps: the outputs of the whole step."""
        buffers = right.graph.buffers
        results = node.outputs if tapped else [spec.name for spec in right.graph.by_role("output", *KEPT)]
        copies = {name: read_value(right, name, step).copy() for name in results}
        if not tapped:
            return {}, copies
        operands = [name for name in node.inputs if name and buffers[name].role in ("step", *LEFT_BEHIND)]
        argument = {name: read_value(right, name, step).copy() for name in operands if name not in copies}
        if len(argument) < len(operands):
            self.oracle.restore(right, before)
            self.oracle.write(step)
            argument |= {name: read_value(right, name, step).copy() for name in operands if name in copies}
        return argument, copies

    def _add_line(self, line: str) -> None:
        self.found.lines.append(line)


def _list_results(program: LoweredGraph) -> Iterator[tuple[int, str]]:
    for index, call in enumerate(program.calls):
        for name in call.node.outputs:
            if program.graph.buffers[name].role in LEFT_BEHIND:
                yield index, name


def _list_reliable_results(program: LoweredGraph) -> Iterator[tuple[int, str]]:
    """Return the results whose bytes no later call of the program overwrites."""
    plan = program.plan
    spans = [(index, name, plan.placements[name]) for index, name in _list_results(program)]
    for index, name, location in spans:
        end = location.offset_bytes + location.size_bytes
        later = (
            other
            for at, _, other in spans
            if at > index
            and other.allocation == location.allocation
            and other.offset_bytes < end
            and location.offset_bytes < other.offset_bytes + other.size_bytes
        )
        if next(later, None) is None:
            yield index, name


def _find_call(program: LoweredGraph, node: object) -> int:
    """Return the index of the node's call; -1 if there is none."""
    return next((index for index, call in enumerate(program.calls) if call.node is node), -1)


def _find_smallest_failing(counts: list[int], differs: Callable[[int], bool]) -> int | None:
    """Find the smallest count that differs, if all larger ones differ too; None if the largest does not."""
    if not counts or not differs(counts[-1]):
        return None
    low, high = 0, len(counts) - 1
    while low < high:
        middle = (low + high) // 2
        if differs(counts[middle]):
            high = middle
        else:
            low = middle + 1
    return counts[high]


def _list_kernels(call: Call, variant: Variant) -> tuple[str, ...]:
    """Return the kernels of a call on a GPU tier, in launch order; none for T-CPU."""
    return list_kernel_names(call.entry.code, call.node, variant.graph, variant.plan.capacity)


def _view_bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint32)


def _has_same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.array_equal(_view_bits(a), _view_bits(b)))
