"""Write a log of a single node, with its weights, and a pytest file that fails on it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from zinc_rt.engine.devices import Choice
from zinc_rt.engine.resident import KEPT, parse_capacity
from zinc_rt.host.errors import OutputError, UsageError
from zinc_rt.ir import graph as ir
from zinc_rt.ir.graph import ABSENT, BufferSpec, Node, OpGraph
from zinc_rt.ir.serial import to_bytes
from zinc_rt.ir.verify import verify_graph
from zinc_rt.kernels.weight import Weight
from zinc_rt.mem.plan import plan_memory
from zinc_rt.replay.bisect_result import BisectResult, FailingNode
from zinc_rt.trace import records
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.rebuilt import Opener, hash_value
from zinc_rt.trace.recorder import COUNTS
from zinc_rt.trace.tape import RecordedStep, Tape, read_pieces, read_tape
from zinc_rt.trace.weight_sources import Sources, find_sources
from zinc_rt.trace.weights import weight_bytes
from zinc_rt.trace.writer import LogWriter


@dataclass(frozen=True, slots=True)
class EmittedRepro:
    """The files written for one node. `command` runs the node."""

    log: Path
    test: Path
    command: str

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.log, self.test


def emit_repro(
    log_path: str | Path,
    bisected: BisectResult,
    folder: str | Path,
    choice: Choice | Opener,
    *,
    model: str | Path | None = None,
) -> EmittedRepro:
    """Write node.zlog and test_node.py into `folder`, which is created if necessary.

    The node's operands are those of T-CPU, so a difference is caused by the node itself. If the error
    appears only when memory is reused, the log contains the one step with its complete graph. Raises
    UsageError if bisect found no node, OutputError if the folder cannot be written.
    """
    where = bisected.where
    if where is None:
        raise UsageError(f"nothing to reproduce: {bisected.text}")
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot create the folder: {error.strerror}") from error
    written = folder / "node.zlog"
    with LogReader(log_path) as log:
        tape = read_tape(log)
        step = next(step for step in tape.steps if step.number == where.step)
        graph = tape.graphs[where.graph].graph
        argument = {name: value.tobytes() for name, value in bisected.given.items()}
        if where.tapped:
            graph = extract_node(graph, [node for node in graph.nodes if node.op is not ir.Op.BARRIER][where.node])
        else:  # what is wrong lies between nodes
            pieces = (piece for write in step.writes for piece in read_pieces(log, write))
            argument = {name: data for name, offset, data in pieces if not offset}
            argument |= _read_state(graph, step, bisected.before)
        _write(written, tape, where, step, graph, bisected, argument, find_sources(log, tape, model))
    tier, device = bisected.tier, "sim" if isinstance(choice, Choice) and choice.simulated else "auto"
    test = folder / "test_node.py"
    try:
        test.write_text(_TEST.format(what=_quote_sentence(bisected), tier=tier, device=device), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{test}: cannot write: {error.strerror}") from error
    command = ["zinc-rt-replay", str(written), "--tiers", tier, *(["--device", device] if device == "sim" else [])]
    return EmittedRepro(written, test, shlex.join(command))


def extract_node(graph: OpGraph, node: Node) -> OpGraph:
    """Return a graph of that node only. Its inputs from other nodes come from the host, and the host reads
    its results."""
    buffers: dict[str, BufferSpec] = {COUNTS: graph.buffers[COUNTS]}
    for name in node.inputs:
        if name == ABSENT:
            continue
        spec = graph.buffers[name]
        buffers[name] = replace(spec, role="step") if spec.role in ("activation", "output") else spec
    for name in node.outputs:
        spec = graph.buffers[name]
        buffers[name] = replace(spec, role="output") if spec.role == "activation" else spec
    alone = OpGraph(f"{graph.name} {node.label}", graph.stage, MappingProxyType(buffers), (node,))
    verify_graph(alone)
    return alone


def _read_state(graph: OpGraph, step: RecordedStep, before: dict[str, bytes]) -> dict[str, bytes]:
    """Return the state by buffer, from the content of each allocation of state and tables."""
    plan = plan_memory(graph, capacity=parse_capacity(step.key))
    places = {spec.name: plan.placements[spec.name] for spec in graph.by_role(*KEPT)}
    return {
        name: before[location.allocation][location.offset_bytes : location.offset_bytes + location.size_bytes]
        for name, location in places.items()
    }


def _write(
    path: Path,
    tape: Tape,
    where: FailingNode,
    step: RecordedStep,
    graph: OpGraph,
    bisected: BisectResult,
    given: dict[str, bytes],
    sources: Sources,
) -> None:
    weights, constants = sources
    header = {**tape.header, "level": "inputs", "tier": "t_cpu", "one_node": f"step {where.step}, {where.label}"}
    with LogWriter(path, header) as log:
        for spec in graph.by_role("weight", "constant"):
            weight = weights.get(spec.name) or Weight("f32", constants[spec.name].shape, constants[spec.name])
            blob = log.write_blob(weight_bytes(weight).data)
            log.write(records.WeightRecord(spec.name, weight.dtype, weight.shape, blob, blob))
        log.write(records.GraphCreated(0, graph.name, graph.stage, log.write_blob(to_bytes(graph))))
        log.write(records.VariantAdded(0, step.key))
        given = {**given, COUNTS: np.array(step.counts, np.int32).tobytes()}
        for name, content in given.items():
            if content and any(content):  # fresh memory is zero
                log.write(records.Wrote(0, step.key, name, 0, len(content), blob=log.write_blob(content)))
        log.write(records.Replayed(0, 0, step.key, step.stream, step.counts, 0.0))
        for name, value in bisected.made.items():
            dtype = graph.buffers[name].dtype
            node = 0 if where.tapped else -1
            log.write(records.Output(0, name, dtype, value.shape, hash_value(value), node, where.label))
        log.write(records.Retired(0, 0.0, 0.0))
    if log.failed:
        raise OutputError(f"{path}: cannot write: {log.failed}", next="choose another folder")


def _quote_sentence(bisected: BisectResult) -> str:
    return bisected.text.replace("\\", "/").replace('"', "'")


_TEST = '''\
"""{what}.

Made by zinc-rt-replay --bisect --emit-repro: node.zlog holds the one node, its weights and T-CPU's operands.
"""

from pathlib import Path

from zinc_rt.replay.run import replay
from zinc_rt.engine.devices import choose_tier


def test_the_node_has_the_bits_of_the_oracle():
    log = Path(__file__).with_name("node.zlog")
    outcome = replay(log, choose_tier("{tier}", "{device}", simulate=True))
    assert outcome.equal, outcome.text
    assert not outcome.findings, outcome.findings[0]
'''
