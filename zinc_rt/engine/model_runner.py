"""Run the scheduler's steps on a device: each launch of a plan is one write, one replay and one wait, and
returns the sampled tokens, which leave the device by the output ring. A plan has one launch, or two if it has
tokens of prompts and of decodes, and these have different orderings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from zinc_rt.engine.embedding import HiddenStates
from zinc_rt.engine.output_ring import ExpectedEntries
from zinc_rt.engine.row_sampler import RowSampler
from zinc_rt.engine.runner import Runner, StepBlock, StepHandle, StepOutput, take_block
from zinc_rt.host.errors import ZincError
from zinc_rt.ir.graph import OpGraph, TokenRole
from zinc_rt.ir.slot_record import free_records
from zinc_rt.model.builder import HIDDEN
from zinc_rt.model.copy_graph import build_copy_graph, list_caches
from zinc_rt.model.pooling import Pooler
from zinc_rt.sched.kv.kv_cache import PageCopy
from zinc_rt.sched.plan import Drawn, StepLaunch, StepPlan
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.usage.ledger import RunnerCounts

Watch = Callable[[StepPlan, np.ndarray], object]
Collected = Callable[[Runner, StepPlan, StepOutput], object]


class StepInterrupted(ZincError):
    """Ctrl-C was pressed while a step ran."""

    exit_code = 130


@dataclass(frozen=True, slots=True)
class FilledLaunch:
    """A launch of a step with its step block, and the entries of the output ring that it will write."""

    launch: StepLaunch
    block: StepBlock
    expected: ExpectedEntries


@dataclass(frozen=True, slots=True)
class StepRunning:
    """A step in flight: the first of its launches was submitted."""

    plan: StepPlan
    launches: Sequence[FilledLaunch]
    handle: StepHandle
    begun_ns: int


class ModelRunner:
    """Runs a scheduler's plans on one model. `counts`: work counters for the ledger. `watch` receives every
    step's logits, f32 [rows, V], valid during the call; `collected`, its output, and the runner that ran it.
    `embeddings`: those of an embedding model, else None."""

    def __init__(
        self,
        runner: Runner,
        *,
        end_ids: Sequence[int] = (),
        renew: Callable[[], Runner] | None = None,
    ) -> None:
        """Create a runner. `end_ids`: the model's end tokens. `renew` reopens the device and the model after
        a hung step; None: a hang is fatal."""
        self.runner = runner
        self.counts = RunnerCounts()
        self.interrupted = False
        self.watch: Watch | None = None
        self.collected: Collected | None = None
        model = runner.variants.model("prefill")
        self.embeddings = HiddenStates(Pooler(model.pooling, model.rank_head)) if model.pooling else None
        self._end_ids = tuple(end_ids)
        self._renew = renew
        self._records = free_records(0)

    def attach(self, records: np.ndarray) -> None:
        """Attach the scheduler's slot records, RECORD [slots]. Steps read their current values."""
        self._records = records
        model = self.runner.variants.model("decode")
        self._sampler = RowSampler(self.runner, records, model.columns, self._end_ids)
        self._copier = PageCopier(self.runner, model.graph, model.limits.page_tokens)

    def submit(self, plan: StepPlan) -> StepRunning:
        """Copy the pages that the plan lists, then submit the step. Its graph is built if it does not exist. A
        plan without tokens draws late rows."""
        try:
            return self._submit(plan)
        except KeyboardInterrupt:
            raise self._interrupt() from None

    def collect(self, handle: object) -> Drawn:
        """Wait for a step until its deadline, and for its sampled tokens."""
        assert isinstance(handle, StepRunning)
        try:
            return self._collect(handle)
        except KeyboardInterrupt:
            raise self._interrupt() from None

    def _interrupt(self) -> StepInterrupted:
        """Ctrl-C fails the step, which the scheduler can recover from; `interrupted` records it."""
        self.interrupted = True
        return StepInterrupted("the step was interrupted")

    def _submit(self, plan: StepPlan) -> StepRunning:
        begun_ns = time.monotonic_ns()
        self._sampler.bind_slots(plan)
        if plan.copies:
            self._copier.copy(plan.copies)
        launches = [self._fill(launch) for launch in plan.list_launches()]
        return StepRunning(plan, launches, self._launch(launches[0]), begun_ns)

    def _fill(self, launch: StepLaunch) -> FilledLaunch:
        plan = launch.plan
        if not plan.tokens:
            block = self._sampler.late(plan)
        else:
            block = self.runner.fill(plan, role=launch.role, form=self._sampler.choose_form(plan))
            self._sampler.fill(block, plan)
        return FilledLaunch(launch, block, self._sampler.expected(plan))

    def _launch(self, filled: FilledLaunch) -> StepHandle:
        if self.runner.planned is not None:
            self.runner.planned(filled.launch.plan, self._records)
        return self.runner.submit(filled.block)

    def _collect(self, running: StepRunning) -> Drawn:
        """Collect the launches in order. Each is submitted when the one before it was read, since they share
        activation memory."""
        plan, handle = running.plan, running.handle
        drawn_by_launch, logits = [], []
        for index, filled in enumerate(running.launches):
            if index:
                handle = self._launch(filled)
            part, at = filled.launch.plan, filled.launch.rows
            output = self.runner.collect(handle)
            if self.collected is not None and part.rows and part.tokens:
                self.collected(self.runner, part, output)
            if self.watch is not None and part.rows and part.tokens:
                logits.append((at, output.logits().copy()))
            if self.embeddings is not None and part.tokens:
                self.embeddings.collect(part, output.read(HIDDEN))
            if self.watch is not None and logits and filled is running.launches[-1]:
                order = np.argsort(np.concatenate([at for at, _ in logits]))
                self.watch(plan, np.concatenate([values for _, values in logits])[order])
            drawn_by_launch.append((at, self._sampler.read_tokens(output, part, filled.expected)))
        drawn = Drawn.join(drawn_by_launch)
        bound = int(np.count_nonzero(self._records["state"]))
        rows, took_ns = plan.rows - len(plan.list_undrawn(drawn.nonfinite)), time.monotonic_ns() - running.begun_ns
        self.counts = self.counts.after(plan.tokens, rows, bound, took_ns)
        return drawn

    def reopen(self) -> bool:
        """Reopen the device after a hung step; memory contents are lost. Return False if that is impossible."""
        if self.interrupted:
            self._sampler.abandon()
            return self.runner.drain()
        if self._renew is None:
            return False
        try:
            self.runner = self._renew()
        except ZincError:
            return False
        self.attach(self._records)
        return True

    def read_page_table(self, group: int) -> np.ndarray | None:
        """Return the device's page table of a group for an audit, i32 [slots, pages], or None before the
        first step."""
        name = f"state.page_table_{group}" if group else "state.page_table"
        known = (variant for variant in self.runner.variants.ran() if name in variant.graph.buffers)
        variant = next(known, None)
        return None if variant is None else variant.read_back(name)

    def read_stored_records(self) -> tuple[np.ndarray, list[int]] | None:
        """Return `RowSampler.stored`, for an audit."""
        return self._sampler.read_stored()

    def build(
        self,
        tokens: int,
        sampling: Sampling,
        *,
        role: TokenRole = "decode",
        sequences: int = 1,
        rows: int = 0,
        load: bool = True,
    ) -> None:
        """Load the weights and build the graph of a step with `sequences` sequences, tokens of this role and this
        sampling. `rows`: of logits, 0 for one of each sequence. `load` False: only plan it, into the store."""
        variants = self.runner.variants
        stage = variants.choose_stage(tokens, sequences, role)
        form = self._sampler.choose_sampling_form(sampling)
        if load:
            self.runner.block(stage, tokens=tokens, sequences=sequences, rows=rows or sequences, form=form)
        else:
            variants.plan(stage, tokens, sequences, rows or sequences, form=form)

    def build_draft(self, sequences: int, *, load: bool = True) -> None:
        """Build the graph that drafts a token of each of so many sequences, with SequenceLimits.mtp. `load`: see
        `build`."""
        variants = self.runner.variants
        if variants.limits.mtp and load:
            variants.draft_variant(sequences, 0)
        elif variants.limits.mtp:
            variants.plan_draft(sequences)


ROWS = 128  # tokens' keys and values that a replay copies


class PageCopier:
    """Copies pages within a model's groups; `forward` is a copy graph."""

    def __init__(self, runner: Runner, forward: OpGraph, page_tokens: int) -> None:
        self._runner = runner
        self._forward = forward
        self._page_tokens = page_tokens
        self._tables = sorted(spec.name for spec in forward.by_role("table"))  # by group

    def copy(self, copies: Sequence[PageCopy]) -> None:
        """Perform the copies in order, before the next submission."""
        for group in sorted({item.group for item in copies}):
            items = [item for item in copies if item.group == group]
            source = np.concatenate([self._list_rows(item.source, item.tokens) for item in items])
            target = np.concatenate([self._list_rows(item.target, item.tokens) for item in items])
            for start in range(0, len(source), ROWS):
                self._replay(group, source[start : start + ROWS], target[start : start + ROWS])

    def _list_rows(self, page: int, tokens: int) -> np.ndarray:
        return page * self._page_tokens + np.arange(tokens, dtype=np.int32)

    def _replay(self, group: int, source: np.ndarray, target: np.ndarray) -> None:
        block = self._find_block(group)
        block.counts[:] = 0
        block.counts[1] = len(source)
        block.views["copy.source"][: len(source)] = source
        block.views["copy.target"][: len(target)] = target
        self._runner.collect(self._runner.submit(block))

    def _find_block(self, group: int) -> StepBlock:
        name = f"copy-{group}"

        def make() -> OpGraph:
            return build_copy_graph(self._forward, list_caches(self._forward, self._tables[group]), name=name)

        return take_block(self._runner.variants.copy_variant(name, (1, ROWS, 1), make))
