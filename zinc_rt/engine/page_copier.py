"""Pages that are copied on the device, so that one goes on where another was: the partly filled one of a fork."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zinc_rt.engine.runner import Runner, StepBlock
from zinc_rt.ir.graph import OpGraph
from zinc_rt.model.copy_graph import caches, copy_graph
from zinc_rt.sched.kv.kv_cache import PageCopy

ROWS = 128  # tokens' keys and values that a replay copies


class PageCopier:
    """Copies between pages of a model's groups; `forward` is a graph of it."""

    def __init__(self, runner: Runner, forward: OpGraph, page_tokens: int) -> None:
        self._runner = runner
        self._forward = forward
        self._page_tokens = page_tokens
        self._tables = sorted(spec.name for spec in forward.by_role("table"))  # by group
        self._blocks: dict[int, StepBlock] = {}

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Do it, in order, before what is submitted next."""
        for group in sorted({each.group for each in copies}):
            here = [each for each in copies if each.group == group]
            source = np.concatenate([self._rows(each.source, each.tokens) for each in here])
            target = np.concatenate([self._rows(each.target, each.tokens) for each in here])
            for start in range(0, len(source), ROWS):
                self._replay(group, source[start : start + ROWS], target[start : start + ROWS])

    def _rows(self, page: int, tokens: int) -> np.ndarray:
        return page * self._page_tokens + np.arange(tokens, dtype=np.int32)

    def _replay(self, group: int, source: np.ndarray, target: np.ndarray) -> None:
        block = self._blocks.get(group) or self._build(group)
        block.counts[:] = 0
        block.counts[1] = len(source)
        block.views["copy.source"][: len(source)] = source
        block.views["copy.target"][: len(target)] = target
        self._runner.collect(self._runner.submit(block))

    def _build(self, group: int) -> StepBlock:
        resident = self._runner.variants.resident
        graph = copy_graph(self._forward, caches(self._forward, self._tables[group]), name=f"copy-{group}")
        variant = resident.build(graph, (1, ROWS, 1), resident.graph(graph.name, graph))
        block = self._blocks[group] = StepBlock(variant)
        return block
