"""The sample and copy graphs on every tier: the oracle's bits, whatever a row asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from vulkan_driver import require_driver

from zinc_rt.backends.base import Backend
from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.resident import Resident, Variant
from zinc_rt.engine.runner import StepBlock
from zinc_rt.exec import Stream
from zinc_rt.ir.dtypes import ACTIVATION
from zinc_rt.ir.graph import Builder, OpGraph
from zinc_rt.ir.op import Op
from zinc_rt.ir.slot_record import RECORD, SlotFlag
from zinc_rt.kernels.cases import Case
from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.table import FUNCTIONS
from zinc_rt.mem.heaps import ROLE_HEAPS, BufferHeap
from zinc_rt.model.copy_graph import build_copy_graph, list_caches, list_states
from zinc_rt.model.sample_graph import (
    BIASES,
    COUNTS,
    CURSOR,
    KEPT_LOGITS,
    LOGITS,
    RECORD_TABLE,
    RING,
    RING_ENTRIES,
    TOKEN,
    SampleForm,
    add_sampling,
    build_late_draw_graph,
)

TIERS = ("t_cpu", "t_cpu_native", "vulkan", "t1", "t2")
SEEN = {**ROLE_HEAPS, "state": BufferHeap.BAR}  # the test looks at what the device keeps
VOCAB, SLOTS = 333, 7
FULL = SampleForm(VOCAB, SLOTS, penalty_rows=4, bias_rows=3, mask_rows=2, top=3, ends=2)
MASKED = SampleForm(VOCAB, SLOTS, penalty_rows=SLOTS, bias_rows=3, mask_rows=3, top=3, ends=2)
PLAIN = SampleForm(VOCAB, SLOTS)
LOGPROB = SampleForm(VOCAB, SLOTS, bias_rows=1, top=0)
GREEDY = SampleForm(VOCAB, SLOTS, greedy=True)


@contextmanager
def open_simulated(tier: str) -> Iterator[Backend]:
    """A simulated device with sanitizer mode full; fails if there are findings at the end."""
    if tier == "vulkan":
        require_driver()
    how: dict[str, Any] = {"sanitizer": "full"} if tier in ("t1", "t2") else {}
    backend = open_backend(choose_tier(tier, "sim" if how else "auto", **how), "canonical-1")
    try:
        yield backend
        assert backend.instrument is None or backend.instrument.findings() == []
    finally:
        backend.close()


@dataclass
class Bench:
    """A graph that samples from logits passed as input, and the graph for its late draws."""

    sample: Variant
    late: Variant | None
    stream: Stream

    def draw(self, logits: np.ndarray, filled: dict[str, np.ndarray], bound: int) -> tuple[int, int, int, int]:
        return self._run(self.sample, (0, bound, len(logits), 0), {**filled, "step.x": logits})

    def draw_late(self, filled: dict[str, np.ndarray]) -> tuple[int, int, int, int]:
        assert self.late is not None
        own = {name: values for name, values in filled.items() if name in self.late.graph.buffers}
        return self._run(self.late, (0, 0, len(own["sample.row_slot"]), 0), own)

    def _run(
        self, variant: Variant, counts: tuple[int, int, int, int], views: dict[str, np.ndarray]
    ) -> tuple[int, int, int, int]:
        block = StepBlock(variant)
        block.counts[:4] = counts
        for name, values in views.items():
            block.views[name][: len(values)] = values
        variant.write_step(block.raw)
        variant.submit(self.stream).wait(600)
        return counts


def bench(resident: Resident, form: SampleForm, rows: int) -> Bench:
    builder = Builder("forward")
    builder.buffer("step.counts", (8,), "i32", "step")
    x = builder.buffer("step.x", ("rows", VOCAB), ACTIVATION, "step")
    builder.node(
        Op.SCALE, (x, ""), (builder.buffer(LOGITS, ("rows", VOCAB), ACTIVATION, "output"),), label="x", factor=1.0
    )
    likeliest = [builder.buffer(name, ("rows",), "i32", "output") for name in (TOKEN, "nonfinite")]
    builder.node(Op.ARGMAX, (LOGITS,), tuple(likeliest))
    key = (1, max(2, SLOTS), rows)
    late = build_graph(resident, build_late_draw_graph(form), key) if form.mask_rows else None
    return Bench(build_graph(resident, add_sampling(builder.build(), form), key), late, Stream("one"))


def build_graph(resident: Resident, graph: OpGraph, key: tuple[int, ...], **how: Any) -> Variant:
    return resident.build(graph, key, resident.graph(graph.name, graph), heaps=SEEN, **how)


def adjust_operands(form: SampleForm, rows: int, values: str, seed: int) -> dict[str, np.ndarray]:
    """Of LOGITS_ADJUST, by port."""
    dims = {"L": rows, "V": VOCAB, "slots": SLOTS, "words": 64, "P": form.penalty_rows, "ends": form.ends}
    dims |= {"B": max(1, form.bias_rows), "biases": BIASES, "M": max(1, form.mask_rows)}
    without = ("bias_id", "bias_value") * (not form.bias_rows) + ("mask", "mask_row") * (not form.mask_rows)
    case = Case(Op.LOGITS_ADJUST, dims, without=without, values=values, seed=seed)
    names = "logits row_slot position record counts end_id bias_id bias_value mask mask_row"
    return dict(zip(names.split(), case.operands(), strict=True))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("form", [FULL, PLAIN, LOGPROB], ids=["full", "plain", "logprob"])
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=3)
def test_every_row_samples_the_same_token_as_the_oracle(tier: str, form: SampleForm) -> None:
    with open_simulated(tier) as backend:
        resident = Resident(backend, {}, {}, share_arenas=True)
        result = bench(resident, form, 8)
        ring, cursor = np.zeros((RING_ENTRIES, 4), np.int32), np.zeros(1, np.int32)
        for seed, (rows, values) in enumerate([(7, "mixed"), (1, "ties"), (5, "edges")]):
            argument = adjust_operands(form, rows, values, seed)
            if form.mask_rows:  # each row's logits are kept in its slot
                argument["row_slot"] = np.random.default_rng(seed).permutation(SLOTS)[:rows].astype(np.int32)
            filled = {f"sample.{name}": array for name, array in argument.items() if array is not None}
            del filled["sample.logits"], filled["sample.counts"], filled["sample.record"]
            filled |= {"sample.record_slot": np.arange(SLOTS, dtype=np.int32)}
            result.sample.write(COUNTS, argument["counts"])
            counts = result.draw(argument["logits"], {**filled, "sample.record": argument["record"]}, SLOTS)

            wanted = sample_by_oracle(form, argument, ring, cursor)
            for name, want in wanted.items():
                assert_same(result.sample.read(f"sample.{name}", counts), want, name)
            assert_same(result.sample.read(COUNTS, counts), argument["counts"], "counts")
            assert_same(result.sample.read(RECORD_TABLE, counts), argument["record"], "records")
            assert_same(result.sample.read(CURSOR, counts), cursor, "cursor")
            assert_same(result.sample.read(RING, counts), ring, "ring")
            if form.mask_rows:
                assert_same(
                    result.sample.read(KEPT_LOGITS, counts)[argument["row_slot"]], argument["logits"], "kept"
                )
        resident.unload()


def sample_by_oracle(
    form: SampleForm, operands: dict[str, np.ndarray], ring: np.ndarray, cursor: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the results of the reference functions, by output. Counts, ring and cursor are updated in place."""
    math = arithmetic("canonical-1")
    slot, position, record, counts = (operands[name] for name in ("row_slot", "position", "record", "counts"))
    with np.errstate(all="ignore"):
        adjusted = FUNCTIONS[Op.LOGITS_ADJUST](math, *operands.values())
        token = FUNCTIONS[Op.SAMPLE_SLOTS](math, adjusted, slot, position, record, counts)
        wanted = {"token": token}
        if form.top is not None:
            logprobs = FUNCTIONS[Op.LOGPROBS](math, operands["logits"], token, top=form.top)
            names = ("logprob", "top_id", "top_logprob") if form.top else ("logprob",)
            wanted |= dict(zip(names, logprobs, strict=False))
        FUNCTIONS[Op.STREAM_OUT](math, token, slot, position, record, ring, cursor)
    return wanted


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", TIERS)
def test_late_row_draws_the_same_token(tier: str) -> None:
    late = [1, 3]
    with open_simulated(tier) as backend:
        resident = Resident(backend, {}, {}, share_arenas=True)
        result = bench(resident, MASKED, 8)
        argument = adjust_operands(MASKED, 5, "mixed", 7)
        argument["record"].view(RECORD)["penalty_row"] = np.arange(SLOTS)[:, None]  # as a scheduler assigns them
        argument["mask_row"][:] = [0, 1, -1, 1, 0]
        in_time = sample_by_oracle(
            MASKED, {**argument, "counts": (counted := argument["counts"].copy())}, *unread_ring()
        )
        assert (in_time["token"] >= 0).all() and (counted != argument["counts"]).any()

        filled = {f"sample.{name}": array for name, array in argument.items()}
        del filled["sample.logits"], filled["sample.counts"]
        filled |= {"sample.record_slot": np.arange(SLOTS, dtype=np.int32)}
        result.sample.write(COUNTS, argument["counts"])
        none, rows = argument["mask"].copy(), argument["mask_row"].copy()
        none[2], rows[late] = 0, 2
        counts = result.draw(argument["logits"], {**filled, "sample.mask": none, "sample.mask_row": rows}, SLOTS)
        wanted = in_time["token"].copy()
        wanted[late] = -1
        assert_same(result.sample.read("sample.token", counts), wanted, "first")

        other = {"step.x": argument["logits"][late] + 1}  # a step of other slots in between
        slots = np.setdiff1d(np.arange(SLOTS), argument["row_slot"][late])[:2].astype(np.int32)
        quiet = {"sample.row_slot": slots, "sample.position": slots, "sample.mask_row": np.full(2, -1, np.int32)}
        before = result.sample.read(COUNTS, counts).copy()
        result.draw(other["step.x"], {**filled, **quiet}, SLOTS)
        result.sample.write(COUNTS, before)

        of_rows = ("row_slot", "position", "mask_row")
        own = {name: array[late] if name[7:] in of_rows else array for name, array in filled.items()}
        own |= {
            "sample.record_slot": (slots := own["sample.row_slot"]),
            "sample.record": argument["record"][slots],
        }
        counts = result.draw_late(own)
        assert result.late is not None
        for name, want in in_time.items():
            assert_same(result.late.read(f"sample.{name}", counts), want[late], name)
        assert_same(result.late.read(COUNTS, counts), counted, "counts")
        resident.unload()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", TIERS)
def test_greedy_rows_deliver_their_most_likely_tokens(tier: str) -> None:
    """Beyond the ring's end, and past a slot with backpressure."""
    with open_simulated(tier) as backend:
        resident = Resident(backend, {}, {}, share_arenas=True)
        result = bench(resident, GREEDY, 8)
        result.sample.write(CURSOR, np.array([RING_ENTRIES - 3], np.int32))
        ring, cursor = np.zeros((RING_ENTRIES, 4), np.int32), np.array([RING_ENTRIES - 3], np.int32)
        for seed, values in enumerate(("mixed", "ties", "edges")):
            argument = adjust_operands(GREEDY, 5, values, seed)
            argument["record"].view(RECORD)["flags"] = [
                [SlotFlag.BACKPRESSURE * (slot == 3)] for slot in range(SLOTS)
            ]
            argument |= {"record_slot": np.arange(SLOTS, dtype=np.int32)}
            names = ("row_slot", "position", "record", "record_slot")
            counts = result.draw(argument["logits"], {f"sample.{name}": argument[name] for name in names}, SLOTS)
            math, token = arithmetic("canonical-1"), argument["logits"].argmax(axis=1).astype(np.int32)
            FUNCTIONS[Op.STREAM_OUT](
                math, token, argument["row_slot"], argument["position"], argument["record"], ring, cursor
            )
            assert_same(result.sample.read(TOKEN, counts), token, "token")
            assert_same(result.sample.read(CURSOR, counts), cursor, "cursor")
            assert_same(result.sample.read(RING, counts), ring, "ring")
        assert RING_ENTRIES < cursor[0] <= RING_ENTRIES + 12
        resident.unload()


def unread_ring() -> tuple[np.ndarray, np.ndarray]:
    """A ring and its cursor, for a test that checks neither."""
    return np.zeros((RING_ENTRIES, 4), np.int32), np.zeros(1, np.int32)


def assert_same(got: np.ndarray, want: np.ndarray, name: str) -> None:
    equal = got.view(np.int32) == want.view(np.int32)
    if want.dtype == np.float32:
        equal |= np.isnan(got) & np.isnan(want)
    assert got.shape == want.shape and equal.all(), name


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", TIERS)
def test_sampling_record_persists_until_rebound(tier: str) -> None:
    with open_simulated(tier) as backend:
        resident = Resident(backend, {}, {})
        result = bench(resident, PLAIN, 8)
        logits = np.zeros((1, VOCAB), np.float32)
        argument = adjust_operands(PLAIN, 1, "plain", 3)
        step = {"sample.row_slot": np.array([5], np.int32), "sample.position": np.array([9], np.int32)}
        step |= {"sample.end_id": np.array([-1], np.int32)}
        record = argument["record"]
        record.view(RECORD)["temperature"] = 1
        record.view(RECORD)["flags"] = 0
        bound = {"sample.record_slot": np.array([5, 2], np.int32), "sample.record": record[[5, 2]]}
        first = result.sample.read("sample.token", result.draw(logits, {**step, **bound}, 2)).tolist()
        tokens = result.sample.read("sample.token", result.draw(logits, step, 0)).tolist()
        assert first == tokens
        table = result.sample.read(RECORD_TABLE, (0, 0, 1, 0)).copy()
        assert table[[5, 2]].tolist() == record[[5, 2]].tolist() and not table[[0, 1, 3, 4, 6]].any()
        resident.unload()


def paged_model() -> OpGraph:
    """Two layers with caches and one with recurrent state: the part of a model that copying uses."""
    builder = Builder("paged")
    builder.buffer("step.counts", (8,), "i32", "step")
    x = builder.buffer("step.x", ("tokens", 24), ACTIVATION, "step")
    index = [builder.buffer(f"step.{name}", ("tokens",), "i32", "step") for name in ("position", "slot")]
    index.append(builder.buffer("state.page_table", (2, 4), "i32", "table"))
    for layer in (0, 1):
        kv = [builder.buffer(f"state.kv_{which}[{layer}]", (32, 24), ACTIVATION, "state") for which in "kv"]
        builder.node(Op.KV_WRITE_BATCHED, (x, x, *index, *kv), tuple(kv), label=f"kv-{layer}", page_tokens=4)
    rows = [builder.buffer(f"state.rows[{layer}]", (5, 3, 8), ACTIVATION, "state") for layer in (0, 1)]
    ids = builder.buffer("step.ids", ("sequences",), "i32", "step")
    for row in rows:
        value = builder.buffer(f"act.{row}", ("sequences", 3, 8), ACTIVATION, "activation")
        builder.node(Op.LOAD_REQUEST_STATE, (row, ids), (value,))
    return builder.build()


def test_caches_and_states_are_distinguished() -> None:
    graph = paged_model()
    assert list_caches(graph, "state.page_table") == tuple(f"state.kv_{w}[{n}]" for n in (0, 1) for w in "kv")
    assert list_states(graph) == ("state.rows[0]", "state.rows[1]")


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("tier", TIERS)
def test_row_copy_changes_only_the_target_rows(tier: str) -> None:
    with open_simulated(tier) as backend:
        resident = Resident(backend, {}, {})
        graph = paged_model()
        random = np.random.default_rng(1)
        for names, rows, shape in (
            (("state.kv_k[1]", "state.kv_v[0]"), 32, (24,)),
            (list_states(graph), 5, (3, 8)),
        ):
            copy = build_graph(resident, build_copy_graph(graph, names, name=f"copy-{rows}"), (1, 6, 1))
            before = {
                name: random.normal(size=(rows, *shape)).astype(np.float32)
                for name in graph.buffers
                if graph.buffers[name].role == "state" and graph.buffers[name].shape[0] == rows
            }
            for name, values in before.items():
                copy.write(name, values)
            block = StepBlock(copy)
            source, target = ([3, 4, 3], [1, 0, 2])
            block.counts[1] = 3
            block.views["copy.source"][:3], block.views["copy.target"][:3] = source, target
            copy.write_step(block.raw)
            copy.submit(Stream("one")).wait(600)
            for name, want in before.items():
                if name in names:
                    want[target] = want[source]
                assert copy.read(name, (0, 3, 0, 0)).tobytes() == want.tobytes(), name
        resident.unload()
