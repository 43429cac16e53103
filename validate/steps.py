"""Check each step that the host built against the request, independently, from the bytes written.

Every tier is fed the same steps, so a wrong position, row of logits or page makes all of them wrong in the same
way, and a comparison between them cannot distinguish it from a wrong model. The step blocks are therefore read as
they are written, and compared with the requested tokens: ids, consecutive positions, pages that no two places
share, a row of logits for every token, and recurrent state that begins from the zero row and stays in a row of the
slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zinc_rt.engine.engine import Engine
from zinc_rt.engine.resident import Variant
from zinc_rt.engine.runner import COUNTS, PARTS, TABLES
from zinc_rt.exec import Buffer, Graph, Observer
from zinc_rt.ir.graph import ENTRIES, SYMBOLS
from zinc_rt.mem.plan import STEP
from zinc_rt.sched.kv.kv_cache import ZERO

NAMES = {buffer: name for name, buffer in PARTS.items()}


@dataclass(frozen=True, slots=True)
class StepMismatch:
    """One difference between a step and the request: `where` is the location in the step block or in the state;
    `step` counts from the engine's first step.
    """

    step: int
    where: str
    got: str
    want: str

    @property
    def text(self) -> str:
        return f"step {self.step} as the host built it: {self.where} is {self.got}, expected {self.want}"

    def first_bad(self) -> dict[str, Any]:
        return {"node": "step", "step": self.step, "where": self.where, "saw": self.got, "wanted": self.want}


@dataclass(eq=False)
class StepWatch(Observer):
    """An observer that tracks the expected steps independently: it begins a sequence in a slot and feeds it
    tokens, each of which must give logits. Steps without fed tokens are ignored. `wrong` is the first difference.
    """

    engine: Engine | None = None
    wrong: StepMismatch | None = None
    steps: int = 0
    _bound: dict[int, tuple[Graph, tuple[int, ...], str]] = field(default_factory=dict)
    _asked: deque[int] = field(default_factory=deque)
    _slot: int = 0
    _position: int = 0
    _pages: dict[tuple[int, int], int] = field(default_factory=dict)  # of a page group and the slot's place

    def begin(self, slot: int) -> None:
        """Start a new sequence that was just opened."""
        self._slot, self._position = slot, 0
        self._pages.clear()
        self._asked.clear()

    def feed(self, tokens: Sequence[int]) -> None:
        self._asked.extend(int(token) for token in tokens)

    # --- exec.Observer

    def bound(self, graph: Graph, port: str, buffer: Buffer) -> None:
        allocation, _, key = port.rpartition("@")
        self._bound[id(buffer)] = graph, tuple(int(part) for part in key.split(",")), allocation

    def wrote(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        graph, key, allocation = self._bound[id(buffer)]
        if allocation == STEP and self.engine is not None:
            self._check_step(self.engine.variants.find(graph, key), data)

    # --- inside

    def _check_step(self, variant: Variant, data: memoryview) -> None:
        if self._asked:
            self._compare(_split_parts(variant, data))
        self.steps += 1

    def _compare(self, parts: dict[str, np.ndarray]) -> None:
        counts = dict(zip(SYMBOLS, parts[COUNTS].tolist(), strict=False))
        tokens = min(len(self._asked), max(1, counts["tokens"]))
        ids = [self._asked.popleft() for _ in range(tokens)]
        first = self._position
        self._position += tokens
        for name, want in (("tokens", tokens), ("sequences", 1), ("rows", tokens)):
            if counts[name] != want:
                self._record_mismatch(f"the count of {name}", counts[name], want)
        expected = {
            "token_id": ids,
            "position": range(first, first + tokens),
            "slot": [self._slot] * tokens,
            "sequence": [0] * tokens,
            "logit_row": range(tokens),
            "state_source": [self._slot + 1 if first else ZERO],
            "state_target": [self._slot + 1],
        }
        for name, values in expected.items():
            if name in parts:
                self._check_equal(name, parts[name], list(values))
        for group in range(len(TABLES)):
            self._check_table(parts, group, counts[ENTRIES[group]], first, first + tokens)

    def _check_equal(self, name: str, got: np.ndarray, want: list[int]) -> None:
        for index, (saw, expected) in enumerate(zip(got.tolist(), want, strict=False)):
            if saw != expected:
                self._record_mismatch(f"{name}[{index}]", saw, expected)
                return

    def _check_table(
        self, parts: dict[str, np.ndarray], group: int, entries: int, first: int, positions: int
    ) -> None:
        """Check that every position that is visible to a token from `first` on has a page, and that no page is
        used twice.
        """
        if TABLES[group][0] not in parts or self.engine is None:
            return
        limits, window = self.engine.limits, self.engine.page_groups[group].window
        changed = (parts[name][:entries] for name in TABLES[group])
        for entry, page in zip(*changed, strict=True):
            slot, index = divmod(int(entry), limits.pages_per_slot)
            if slot == self._slot:
                self._pages[group, index] = int(page)
        of = f" of page group {group}" if group else ""
        seen: dict[int, int] = {}
        oldest = max(0, first - window + 1) if window else 0
        for index in range(oldest // limits.page_tokens, -(-positions // limits.page_tokens)):
            page = self._pages.get((group, index))
            if page is None:
                problem = "never sent to the device"
                self._record_mismatch(
                    f"the page table's entry for slot {self._slot}, place {index}{of}", problem, "a page"
                )
                return
            if page in seen:
                where = f"the page of slot {self._slot}, place {index}{of}"
                self._record_mismatch(where, f"{page}, which place {seen[page]} has", "a page of its own")
                return
            seen[page] = index

    def _record_mismatch(self, where: str, got: object, want: object) -> None:
        if self.wrong is None:
            self.wrong = StepMismatch(self.steps, where, str(got), str(want))


def _split_parts(variant: Variant, data: memoryview) -> dict[str, np.ndarray]:
    """Return the block's i32 arrays by the names of runner.PARTS, as placed by the plan."""
    arrays: dict[str, np.ndarray] = {}
    for spec in variant.graph.by_role("step"):
        placement = variant.plan.placements[spec.name]
        piece = data[placement.offset_bytes : placement.offset_bytes + placement.size_bytes]
        if spec.name == COUNTS or spec.name in NAMES or any(spec.name in pair for pair in TABLES):
            arrays[NAMES.get(spec.name, spec.name)] = np.frombuffer(piece, np.int32)
    return arrays
