"""Ways of running one model that must give the same bits: steps, batches, slots, threads, forms, repetition."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.tiny_models.architectures import ARCHITECTURES, CAUSAL
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.model.builder import DeltaForm
from zinc_rt.model.gguf import GGUFFile, read_gguf

RECURRENT = ("mamba", "qwen35", "qwen35moe", "qwen3next")
CONTEXT = 64  # mistral3's tiny model reaches no further
Counts = Callable[[int, int], int]
Tiny = Callable[..., GGUFFile]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """tiny_model("qwen3", quant="q", hidden=256): the model file, written once a session."""
    folder = tmp_path_factory.mktemp("tiny")

    def write_model(architecture: str, quant: str = "f32", **sizes: int) -> GGUFFile:
        path = folder / f"{architecture}-{quant}-{'-'.join(map(str, sizes.values()))}.gguf"
        if not path.exists():
            write_tiny(path, architecture, quant=quant, **sizes)
        return read_gguf(path)

    return write_model


@pytest.fixture
def run_on() -> Iterator[Callable[..., Engine]]:
    """run_on(model, ordering, slots=2): an engine that is closed when the test ends."""
    engines: list[Engine] = []

    def engine(
        model: GGUFFile,
        ordering: str = "canonical-1",
        *,
        threads: int = 1,
        slots: int = 1,
        delta_form: DeltaForm = "ids",
    ) -> Engine:
        options = EngineOptions(delta_form=delta_form)
        engines.append(
            Engine(model, CpuBackend(ordering, threads=threads), ctx=CONTEXT, slots=slots, options=options)
        )
        return engines[-1]

    yield engine
    for item in engines:
        item.close()


def random_prompt(seed: int, length: int, vocab: int = 512) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab, length).tolist()


def assert_same_logits(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    assert np.isfinite(want).all()
    assert np.abs(want).max() > 0.1
    assert got.tobytes() == want.tobytes(), f"first parted: {np.argwhere(got != want)[:1].tolist()}"


EVERY = pytest.mark.parametrize("architecture", ARCHITECTURES)
STEPWISE = pytest.mark.parametrize("architecture", CAUSAL)
STATEFUL = pytest.mark.parametrize("architecture", RECURRENT)


@STEPWISE
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=6)
def test_token_by_token_matches_all_at_once(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    engine = run_on(tiny_model(architecture))
    ids = random_prompt(1, 35)  # over two page boundaries
    assert_same_logits(engine.forward(ids, prefill="stepwise"), engine.forward(ids))


@STEPWISE
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=6)
def test_appending_twice_matches_appending_once(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    engine = run_on(tiny_model(architecture))
    ids = random_prompt(2, 34)
    whole = engine.forward(ids)
    for cut in (1, 16, 33):
        sequence = engine.open()
        parts = [engine.extend(sequence, ids[:cut]), engine.extend(sequence, ids[cut:])]
        engine.release(sequence)
        assert_same_logits(np.concatenate(parts), whole)
    assert sequence.position == 34
    assert sequence.tokens == ids


@STEPWISE
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=6)
def test_two_sequences_in_one_batch_match_their_solo_runs(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    engine = run_on(tiny_model(architecture), slots=2)
    first, second = random_prompt(3, 21), random_prompt(4, 9)
    alone = [engine.forward(first), engine.forward(second)]
    a, b = engine.open(), engine.open()
    got: dict[int, list[np.ndarray]] = {id(a): [], id(b): []}
    # The batch's order and make-up change: together, in turns, one ahead, one token each.
    plan = [[(a, 14), (b, 3)], [(b, 1), (a, 2)], [(a, 1)], [(b, 4), (a, 3)], [(a, 1), (b, 1)]]
    for batch in plan:
        step = [(s, (first if s is a else second)[s.position : s.position + count]) for s, count in batch]
        total = sum(count for _, count in batch)
        logits = engine.step(step, list(range(total)))
        start = 0
        for sequence, count in batch:
            got[id(sequence)].append(logits[start : start + count])
            start += count
    assert (a.position, b.position) == (21, 9)
    assert_same_logits(np.concatenate(got[id(a)]), alone[0])
    assert_same_logits(np.concatenate(got[id(b)]), alone[1])


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("architecture", ["llama", "gemma4", "qwen35moe", "mamba"])
def test_requested_rows_match_rows_of_the_full_result(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    engine = run_on(tiny_model(architecture))
    ids = random_prompt(5, 18)
    whole = engine.forward(ids)
    assert_same_logits(engine.forward(ids, rows="last"), whole[-1:])
    sequence = engine.open()
    assert_same_logits(engine.step([(sequence, ids)], [17, 3, 3]), whole[[17, 3, 3]])
    engine.release(sequence)
    sequence = engine.open()
    assert engine.step([(sequence, ids)], []).shape == (0, 512)
    engine.release(sequence)


@pytest.mark.parametrize("ordering", ["canonical-1", "canonical-1-q8"])
@pytest.mark.parametrize("architecture", ["llama", "qwen35moe", "gemma4"])
@pytest.mark.rest(keep=1)
def test_thread_count_does_not_affect_results(
    architecture: str, ordering: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    # Rows are shared out in blocks of 1024: a vocabulary of several of them gives every thread something to do.
    model = tiny_model(architecture, quant="q", hidden=256, vocab=4200)
    ids = random_prompt(6, 5, 4200)
    one = run_on(model, ordering).forward(ids)
    for threads in (2, 3):
        assert_same_logits(run_on(model, ordering, threads=threads).forward(ids), one)


@pytest.mark.parametrize("architecture", ["qwen3", "qwen35"])
@pytest.mark.rest
def test_repeated_graph_replay_gives_the_same_bits(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine], slow_counts: Counts
) -> None:
    engine = run_on(tiny_model(architecture, hidden=32))
    ids = random_prompt(7, 3)
    first = engine.forward(ids, rows="last")
    for _ in range(slow_counts(100, 1000)):
        assert engine.forward(ids, rows="last").tobytes() == first.tobytes()
    step = engine.forward(ids[:1])
    for _ in range(slow_counts(100, 1000)):
        assert engine.forward(ids[:1]).tobytes() == step.tobytes()
    assert np.abs(first).max() > 0.1


@STATEFUL
@pytest.mark.rest(keep=1)
def test_every_delta_form_gives_the_same_bits(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    model, ids, other = tiny_model(architecture), random_prompt(8, 19), random_prompt(9, 6)
    results = []
    for form in ("plain", "inplace", "ids"):
        engine = run_on(model, slots=1, delta_form=form)
        results.append(np.concatenate([engine.forward(ids), engine.forward(other, prefill="stepwise")]))
    assert_same_logits(results[1], results[0])
    assert_same_logits(results[2], results[0])


@pytest.mark.rest(keep=1)
@STATEFUL
@pytest.mark.parametrize("form", ["plain", "ids"])
def test_slot_forms_agree_when_two_sequences_alternate(
    architecture: str, form: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    engine = run_on(tiny_model(architecture), slots=3, delta_form=form)
    ids = random_prompt(10, 12)
    alone = engine.forward(ids)
    engine.open()  # takes slot 0: batch position and slot differ from here on
    mine, other = engine.open(), engine.open()
    got = []
    for start in range(0, 12, 3):
        batch = [(other, random_prompt(start, 2)), (mine, ids[start : start + 3])]
        got.append(engine.step(batch, [2, 3, 4]))
    assert_same_logits(np.concatenate(got), alone)


# --- slots -----------------------------------------------------------------------------------------------------


@STEPWISE
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=6)
def test_released_slot_leaves_no_state_to_the_next_sequence(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    model, ids = tiny_model(architecture), random_prompt(11, 10)
    untouched = run_on(model).forward(ids)
    engine = run_on(model)
    for length in (20, 1, 33):
        engine.forward(random_prompt(12, length))
        assert_same_logits(engine.forward(ids), untouched)
        assert_same_logits(engine.forward(ids, prefill="stepwise"), untouched)


@pytest.mark.rest(keep=1)
@STATEFUL
def test_opening_a_slot_does_not_change_other_states(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    engine = run_on(tiny_model(architecture), slots=3)
    ids = random_prompt(13, 14)
    whole = engine.forward(ids)
    keeper, leaver = engine.open(), engine.open()
    got = [engine.extend(keeper, ids[:5])]
    engine.extend(leaver, random_prompt(14, 8))
    engine.release(leaver)
    newcomer = engine.open()
    assert newcomer.slot == leaver.slot
    got.append(engine.extend(keeper, ids[5:9]))
    assert_same_logits(engine.extend(newcomer, ids), whole)
    engine.open()
    got.append(engine.extend(keeper, ids[9:]))
    assert_same_logits(np.concatenate(got), whole)


@pytest.mark.rest(keep=1)
@STATEFUL
def test_sequences_opened_before_the_first_build_start_from_zero(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    model, ids = tiny_model(architecture), random_prompt(15, 6)
    untouched = run_on(model).forward(ids)
    engine = run_on(model, slots=2)
    a, b = engine.open(), engine.open()
    engine.extend(a, random_prompt(16, 7), prefill="stepwise")  # builds the one-token variant first
    assert_same_logits(engine.extend(b, ids), untouched)
    engine.release(a)
    engine.release(b)
    assert_same_logits(engine.extend(engine.open(), ids), untouched)


# --- looking in, and putting in ---------------------------------------------------------------------------------


@EVERY
@pytest.mark.rest(keep=1)
def test_tap_sees_every_result_once_and_changes_none(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    engine = run_on(tiny_model(architecture))
    ids = random_prompt(17, 18)
    plain = engine.forward(ids)
    seen: list[tuple[str, str]] = []

    def record_value(node: Node, name: str, array: np.ndarray) -> None:
        seen.append((node.label, name))
        assert np.isfinite(array).all()
        is_state = node.op is Op.LOAD_REQUEST_STATE and node.label != "result_output"
        assert len(array) == (1 if is_state or "state_out" in name else 18)

    assert_same_logits(engine.forward(ids, tap=record_value), plain)
    graph = engine.graph("prefill")
    results = [
        (node.label, name)
        for node in graph.nodes
        for name in node.outputs
        if graph.buffers[name].role in ("activation", "output")
    ]
    assert seen == results
    assert len(seen) > 20


@STEPWISE
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=6)
def test_injecting_the_original_value_changes_nothing_but_another_does(
    architecture: str, tiny_model: Tiny, run_on: Callable[..., Engine]
) -> None:
    engine = run_on(tiny_model(architecture))
    ids = random_prompt(18, 17)
    own: dict[str, np.ndarray] = {}

    def record_value(node: Node, name: str, array: np.ndarray) -> None:
        if node.label.startswith("l_out-"):
            own[node.label] = array.copy()

    plain = engine.forward(ids, tap=record_value)
    assert len(own) == engine.model.layers
    assert_same_logits(engine.forward(ids, inject=own), plain)
    assert_same_logits(engine.forward(ids, inject={"l_out-0": own["l_out-0"]}, prefill="stepwise"), plain)
    other = own["l_out-0"].copy()
    other[9] = other[9, ::-1]
    got = engine.forward(ids, inject={"l_out-0": other})
    assert_same_logits(got[:9], plain[:9])  # the past does not see it
    assert (np.abs(got[9:] - plain[9:]).max(axis=1) > 1e-4).sum() >= 6
    assert_same_logits(engine.forward(ids), plain)
