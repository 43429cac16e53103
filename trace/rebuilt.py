"""Rebuild a recorded run on a backend: its graphs, its weights, and the steps to replay."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from zinc_rt.backends.base import Backend, Finding, read_findings
from zinc_rt.engine.devices import Choice, open_backend
from zinc_rt.engine.resident import KEPT, TAPPED_HEAPS, Resident, Variant, port_name
from zinc_rt.engine.runner import Deadlines
from zinc_rt.exec import Graph, Stream
from zinc_rt.ir import graph as ir
from zinc_rt.ir.verify import verify_graph
from zinc_rt.mem.heaps import ROLE_HEAPS, BufferHeap
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.tape import RecordedStep, Tape, read_pieces
from zinc_rt.trace.weight_sources import Sources

Opener = Callable[[str], Backend]  # by ordering
STATE_SEEN: Mapping[ir.Role, BufferHeap] = {**ROLE_HEAPS, "state": BufferHeap.BAR, "table": BufferHeap.BAR}
# All that a node may write.
SEEN: Mapping[ir.Role, BufferHeap] = {
    **TAPPED_HEAPS,
    **STATE_SEEN,
    "activation": BufferHeap.BAR,
}  # all that a node may write
ARENA_SEEN: Mapping[ir.Role, BufferHeap] = {**STATE_SEEN, "activation": BufferHeap.BAR}


def make_opener(choice: Choice | Opener, *, threads: int = 0) -> Opener:
    return partial(open_backend, choice, threads=threads) if isinstance(choice, Choice) else choice


class RebuiltModel:
    """A recorded run on a backend, which it closes. A context manager.

    `tapped`: every node's result is kept and can be read, including state; None: as each graph was
    recorded.
    """

    def __init__(
        self,
        log: LogReader,
        tape: Tape,
        sources: Sources,
        opener: Opener,
        *,
        tapped: bool | None = None,
        heaps: Mapping[ir.Role, BufferHeap] | None = None,
        ordering: str = "",
        timeout_seconds: float | None = None,
    ) -> None:
        self.tape = tape
        self.backend = opener(ordering or str(tape.header.get("ordering", "canonical-1")))
        self.lost = False  # a replay ended badly: what closing says adds nothing
        self._log = log
        self._tapped = tapped
        self._heaps = heaps or (SEEN if tapped else None)
        self._resident = Resident(self.backend, *sources)
        self._replays: dict[int, Graph] = {}
        self._variants: dict[tuple[int, tuple[int, ...]], Variant] = {}
        self._streams: dict[str, Stream] = {}
        self._deadlines = Deadlines(timeout_seconds)

    def __enter__(self) -> RebuiltModel:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.backend.close()
        except Exception:
            if not self.lost:
                raise

    def variant(self, graph: int, key: tuple[int, ...]) -> Variant:
        """Return the variant, built on first use. Raises UnsupportedError for a graph that the tier cannot
        run."""
        known = self._variants.get((graph, key))
        if known is None:
            recorded = self.tape.graphs[graph]
            if graph not in self._replays:
                verify_graph(recorded.graph)
                self._replays[graph] = self._resident.graph(recorded.graph.name, recorded.graph)
            tapped = recorded.tapped if self._tapped is None else self._tapped
            known = self._resident.build(
                recorded.graph, key, self._replays[graph], tapped=tapped, heaps=self._choose_heaps(tapped)
            )
            self._variants[graph, key] = known
        return known

    def find_other_kernels(self) -> list[str]:
        """Return the kernels that differ from the recorded ones, among those present in both."""
        changed: set[str] = set()
        for variant in self._variants.values():
            for name, code in variant.built.kernels().items():
                known = self.tape.kernels.get(name)
                if known is not None and known.arch == self.backend.device.arch:
                    changed |= {name} if known.sha256 != hashlib.sha256(code).hexdigest() else set()
        return sorted(changed)

    def spoilt(self, node: ir.Node) -> Iterator[tuple[str, int]]:
        """Return the weights that differ from the uploaded ones, as Resident reports them; empty on a lost
        device."""
        return iter(()) if self.lost else self._resident.spoilt(node)

    def findings(self) -> list[Finding]:
        """Return the findings of a simulated device so far, without repetitions."""
        return read_findings(self.backend)

    def _choose_heaps(self, tapped: bool) -> Mapping[ir.Role, BufferHeap] | None:
        """Return heaps whose state can be read if the log records state as outputs (one-node logs), else None."""
        if self._heaps is not None:
            return self._heaps
        watched = {output.buffer for step in self.tape.steps[:1] for output in step.outputs}
        states = {spec.name for graph in self.tape.graphs.values() for spec in graph.graph.by_role("state")}
        if watched & states:
            return SEEN if tapped else STATE_SEEN
        return None

    def other(
        self,
        step: RecordedStep,
        *,
        graph: ir.OpGraph | None = None,
        tapped: bool = False,
        steps: int | None = None,
    ) -> Variant:
        """Build the step's graph, or `graph`, again over the same weights and state, to run instead of the step:
        tapped, or only the first `steps` of its program. All of its results can be read."""
        graph = graph or self.tape.graphs[step.graph].graph
        replays = self._resident.graph(graph.name, graph)
        heaps = SEEN if tapped else ARENA_SEEN
        return self._resident.build(graph, step.key, replays, tapped=tapped, heaps=heaps, steps=steps)

    def write(self, step: RecordedStep, replacement: Variant | None = None) -> Variant:
        """Write all host data that precedes the step, into the step's blocks or those of `replacement`."""
        own = replacement or self.variant(step.graph, step.key)
        for write in step.writes:
            same = (write.graph, write.key) == (step.graph, step.key)
            variant = own if same else self.variant(write.graph, write.key)
            for buffer, offset_bytes, data in read_pieces(self._log, write):
                variant.write(buffer, data, offset_bytes=offset_bytes)
        return own

    def state(self, variant: Variant) -> dict[str, bytes]:
        """Return the current contents of state and tables, by allocation. Needs readable heaps (SEEN,
        ARENA_SEEN)."""
        names = (name for name in variant.plan.allocations if name.partition("/")[0] in KEPT)
        return {name: bytes(variant.replays.view(port_name(name, variant.key))) for name in names}

    def restore(self, variant: Variant, state: Mapping[str, bytes]) -> None:
        for name, content in state.items():
            variant.replays.write(port_name(name, variant.key), 0, content)

    def submit(self, step: RecordedStep, variant: Variant) -> None:
        """Run the step and wait until it ends."""
        variant.submit(self.stream(step.stream))
        variant.replays.wait(self._deadlines.seconds(self.backend, variant, step.counts))
        variant.ran = True

    def run(self, step: RecordedStep, replacement: Variant | None = None) -> Variant:
        variant = self.write(step, replacement)
        self.submit(step, variant)
        return variant

    def stream(self, name: str) -> Stream:
        return self._streams.setdefault(name, Stream(name))


def read_value(variant: Variant, name: str, step: RecordedStep) -> np.ndarray:
    """Return the contents of a buffer after the step: the rows counted by the step."""
    return np.ascontiguousarray(variant.read(name, step.counts))


def hash_value(value: np.ndarray) -> str:
    return hashlib.sha256(value.reshape(-1).view(np.uint8).data).hexdigest()
