"""Greedy and random choice of tokens, checking of drafts, and the ring results leave by."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from op_cases import ORDERINGS, random_floats, run_op
from slot_cases import make_records

from zinc_rt.ir.op import Op
from zinc_rt.ir.slot_record import RECORD, SlotFlag
from zinc_rt.kernels.reference.sample import philox4x32

# Random123, tests/kat_vectors, "philox4x32 10": counter, key, result
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def parse_words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_philox_matches_the_published_vectors(counter: str, key: str, result: str) -> None:
    assert philox4x32(parse_words(counter), parse_words(key)) == parse_words(result)  # type: ignore[arg-type]


def philox_scalar(counter: list[int], key: list[int]) -> int:
    """Compute the first word of Philox4x32-10, implemented again from the paper: multiply, split, exchange,
    key.
    """
    r0, l0, r1, l1 = counter
    for i in range(10):
        k0 = (key[0] + i * 0x9E3779B9) % 2**32
        k1 = (key[1] + i * 0xBB67AE85) % 2**32
        high0, low0 = divmod(0xD2511F53 * r0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * r1, 2**32)
        r0, l0, r1, l1 = high1 ^ l0 ^ k0, low1, high0 ^ l1 ^ k1, low0
    return r0


def sample(
    ordering: str,
    logits: np.ndarray,
    *,
    temperature: float = 1.0,
    top_k: float = 0,
    top_p: float = 1,
    min_p: float = 0,
    seed: tuple[int, int] = (1, 0),
    choice: Any = 0,
    position: Any = 0,
) -> np.ndarray:
    """SAMPLE with the same settings for every row; choice and position may differ from row to row."""
    rows = len(logits)
    return run_op(
        Op.SAMPLE,
        ordering,
        logits,
        np.tile(np.array(seed, np.uint32).view(np.int32), (rows, 1)),
        np.tile(np.array([temperature, top_k, top_p, min_p], np.float32), (rows, 1)),
        np.broadcast_to(np.asarray(choice, np.int32), rows),
        np.broadcast_to(np.asarray(position, np.int32), rows),
    )


def sample64(
    row: np.ndarray, *, temperature: float, top_k: int, top_p: float, min_p: float, u: float
) -> tuple[int, float]:
    """Return the token selected by the definition, and the distance of u from the nearest boundary."""
    order = sorted(range(len(row)), key=lambda i: (-float(row[i]), i))
    order = order[:top_k] if top_k else order
    w = [math.exp((float(row[i]) - float(row[order[0]])) / temperature) for i in order]
    w = [x for x in w if x >= min_p]
    if top_p < 1:
        total, running = sum(w), 0.0
        for count, x in enumerate(w, 1):
            running += x
            if running >= top_p * total:
                w = w[:count]
                break
    total, running = sum(w), 0.0
    for i, x in enumerate(w):
        running += x
        if running / total > u:
            return order[i], min(running / total - u, u - (running - x) / total)
    raise AssertionError("u is below one")


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 40.0},
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.2},
        {"top_k": 40, "top_p": 0.9, "min_p": 0.05, "temperature": 1.3},
    ],
    ids=str,
)
def test_sample_matches_the_reference_definition(ordering: str, settings: dict[str, float]) -> None:
    logits = random_floats(3, 60, 67, scale=2)
    choices, positions = np.arange(60) % 3, np.arange(60) * 7
    seed = (0xDEADBEEF, 0x80000001)
    got = sample(ordering, logits, **settings, seed=seed, choice=choices, position=positions)
    full = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **settings}
    sure = 0
    for i, row in enumerate(logits):
        u = (philox_scalar([int(choices[i]), int(positions[i]), 0, 0], list(seed)) >> 8) / 2**24
        want, margin = sample64(row, **full, u=u)  # type: ignore[arg-type]
        if margin > 1e-5:
            sure += 1
            assert got[i] == want
    assert sure > 50
    assert len(set(got.tolist())) > 5


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_sample_frequencies_match_the_softmax(ordering: str, slow_counts: Any) -> None:
    count = slow_counts(4000, 100_000)
    row = np.array([1.0, 0.5, -0.5, 2.0, 0.0, 1.5, -1.0, 0.25], np.float32)
    got = sample(ordering, np.tile(row, (count, 1)), temperature=0.8, seed=(42, 7), position=np.arange(count))
    expected = np.exp(row.astype(np.float64) / 0.8)
    expected *= count / expected.sum()
    seen = np.bincount(got, minlength=8)
    chi_square = float(((seen - expected) ** 2 / expected).sum())
    assert chi_square < 24.3  # 7 degrees of freedom: one seed in a thousand lies above


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("change", ["seed", "high seed word", "choice", "position"])
def test_sample_depends_only_on_seed_choice_and_position(ordering: str, change: str) -> None:
    logits = np.tile(random_floats(1, 1, 200), (64, 1))
    base: dict[str, Any] = {"seed": (5, 6), "choice": 3, "position": np.arange(64)}
    other = dict(base)
    match change:
        case "seed":
            other["seed"] = (6, 6)
        case "high seed word":
            other["seed"] = (5, 7)
        case "choice":
            other["choice"] = 4
        case "position":
            other["position"] = np.arange(64) + 1
    first = sample(ordering, logits, **base)
    assert first.tolist() == sample(ordering, logits, **base).tolist()
    alone = [int(sample(ordering, logits[:1], **(base | {"position": p}))[0]) for p in range(64)]
    assert first.tolist() == alone, "the other rows of the batch do not matter"
    assert (first != sample(ordering, logits, **other)).sum() > 40


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0.0}, {"temperature": -1.0}, {"top_k": 1}, {"top_p": 0.0}, {"top_p": 1e-30}, {"min_p": 1.0}],
    ids=str,
)
def test_settings_that_leave_one_candidate_are_argmax(ordering: str, settings: dict[str, float]) -> None:
    logits = random_floats(2, 30, 50)
    got = sample(ordering, logits, **settings, position=np.arange(30))
    assert got.tolist() == [max(range(50), key=row.__getitem__) for row in logits.tolist()]
    assert got.dtype == np.int32


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-38, 1e-44])
def test_temperature_near_zero_is_argmax_too(ordering: str, temperature: float) -> None:
    logits = random_floats(2, 30, 50, scale=20)
    got = sample(ordering, logits, temperature=temperature, position=np.arange(30))
    assert got.tolist() == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_ties_select_the_lower_id(ordering: str) -> None:
    logits = np.array([[1, 3, 3, 2, 3]], np.float32).repeat(40, axis=0)
    assert run_op(Op.ARGMAX, ordering, logits)[0].tolist() == [1] * 40
    for settings in ({"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.0}):
        assert sample(ordering, logits, **settings, position=np.arange(40)).tolist() == [1] * 40
    assert set(sample(ordering, logits, top_k=2, position=np.arange(40)).tolist()) == {1, 2}
    # Three equal ones hold a little over 80 %: 0.5 needs two of them, the lower two.
    assert set(sample(ordering, logits, top_p=0.5, position=np.arange(40)).tolist()) == {1, 2}
    assert set(sample(ordering, logits, min_p=1.0, position=np.arange(40)).tolist()) == {1, 2, 4}


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_filters_wider_than_the_vocabulary_change_nothing(ordering: str) -> None:
    logits = random_floats(4, 50, 9)
    plain = sample(ordering, logits, position=np.arange(50)).tolist()
    assert sample(ordering, logits, top_k=1000, top_p=1.0, min_p=0.0, position=np.arange(50)).tolist() == plain
    assert sample(ordering, logits, top_k=9, position=np.arange(50)).tolist() == plain


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_draw_on_a_boundary_selects_the_token_above(ordering: str) -> None:
    # 4096 equal tokens: u * 4096 is a whole number for one draw in 4096.
    hits = [p for p in range(30_000) if (philox_scalar([0, p, 0, 0], [1, 0]) >> 8) % 4096 == 0]
    assert len(hits) > 1
    got = sample(ordering, np.zeros((len(hits), 4096), np.float32), position=np.array(hits))
    assert got.tolist() == [philox_scalar([0, p, 0, 0], [1, 0]) >> 20 for p in hits]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_forbidden_token_is_never_sampled(ordering: str) -> None:
    logits = random_floats(5, 300, 12)
    logits[:, 3] = -np.inf
    got = sample(ordering, logits, temperature=5.0, position=np.arange(300))
    assert 3 not in got
    assert len(set(got.tolist())) == 11


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_vocabulary_of_one_token_has_one_outcome(ordering: str) -> None:
    assert sample(ordering, np.array([[-7.5]], np.float32)).tolist() == [0]
    assert run_op(Op.ARGMAX, ordering, np.array([[-7.5]], np.float32))[0].tolist() == [0]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_argmax_is_the_first_of_the_largest(ordering: str) -> None:
    logits = random_floats(6, 5, 131, scale=1e30)
    logits[0, [9, 130]] = 3e38
    logits[1] = -1e-45
    logits[1, 77] = 0  # above a negative denormal
    logits[2, 0] = np.inf
    got, _ = run_op(Op.ARGMAX, ordering, logits)
    want = [max(range(131), key=lambda i: (row[i], -i)) for row in logits.tolist()]
    assert got.tolist() == want
    assert got[:3].tolist() == [9, 77, 0]
    assert [part.shape for part in run_op(Op.ARGMAX, ordering, logits[:0])] == [(0,), (0,)]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_argmax_reports_the_position_of_the_first_non_finite_logit(ordering: str) -> None:
    logits = random_floats(7, 6, 131)
    logits[1, 40] = np.nan
    logits[2, 130] = np.inf
    logits[3, 0] = -np.inf
    logits[4, [9, 77, 100]] = np.nan, -np.inf, np.inf
    logits[5] = 3e38
    _, nonfinite = run_op(Op.ARGMAX, ordering, logits)
    assert nonfinite.tolist() == [-1, 40, 130, 0, 9, -1]
    assert nonfinite.dtype == np.int32


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_verify_accepts_the_agreeing_prefix(ordering: str) -> None:
    target = np.array([[4, 5, 6, 7], [4, 5, 6, 7], [4, 5, 6, 7], [4, 5, 6, 7], [9, 9, 9, 9]], np.int32)
    draft = np.array([[4, 5, 6], [0, 5, 6], [4, 0, 6], [4, 5, 0], [9, 9, 9]], np.int32)
    accepted, following = run_op(Op.VERIFY_K, ordering, draft, target)
    assert accepted.tolist() == [3, 0, 1, 2, 3]
    assert following.tolist() == [7, 4, 5, 6, 9]
    assert accepted.dtype == following.dtype == np.int32
    accepted, following = run_op(Op.VERIFY_K, ordering, draft[:2, :1], target[:2, :2])
    assert (accepted.tolist(), following.tolist()) == ([1, 0], [5, 4])


def run_stream_out(
    ordering: str, ring: np.ndarray, cursor: np.ndarray, record: np.ndarray, rows: list[tuple[int, int, int]]
) -> None:
    """STREAM_OUT of rows (slot, position, token)."""
    slot, position, token = (np.array([row[i] for row in rows], np.int32) for i in range(3))
    assert run_op(Op.STREAM_OUT, ordering, token, slot, position, record, ring, cursor) is None


def ring_entry(slot: int, position: int, token: int, row: int, *, epoch: int, flags: int, logprobs: int) -> bytes:
    """Encode an entry of the ring as specified in docs/step.md."""
    return struct.pack("<IiiBBH", epoch * 1024 + slot, position, token, flags, logprobs, row)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_stream_out_fills_the_ring_in_order_and_wraps(ordering: str) -> None:
    record = make_records(
        {"epoch": 5},
        {"epoch": (1 << 22) - 1, "flags": 1 | 32, "logprobs": 0},
        {"epoch": 70, "flags": 16 | 1 << 9, "logprobs": 20, "penalty_row": 0},
    )
    of = {0: (5, 0, 0), 1: ((1 << 22) - 1, 33, 1), 2: (70, 18, 21)}
    ring, cursor = np.full((4, 4), -1, np.int32), np.zeros(1, np.int32)
    written: list[bytes] = []
    for step in range(1, 4):  # two entries, then three, then three: eight in a ring of four
        rows = [(slot, 1000 * step + slot, 7 * step - slot) for slot in (2, 1, 0)[: 2 if step == 1 else 3]]
        run_stream_out(ordering, ring, cursor, record, rows)
        for row, (slot, position, token) in enumerate(rows):
            epoch, flags, logprobs = of[slot]
            written.append(ring_entry(slot, position, token, row, epoch=epoch, flags=flags, logprobs=logprobs))
        assert cursor.tolist() == [len(written)]
        for i, wanted in enumerate(written[-4:], max(0, len(written) - 4)):
            assert ring[i % 4].tobytes() == wanted
    assert len(written) == 8


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_stream_out_of_zero_tokens_and_of_more_than_the_ring_holds(ordering: str) -> None:
    ring, cursor = np.full((3, 4), -1, np.int32), np.array([5], np.int32)
    run_stream_out(ordering, ring, cursor, make_records({}), [])
    assert cursor[0] == 5 and (ring == -1).all()
    run_stream_out(ordering, ring, cursor, make_records({}), [(0, 9, token) for token in range(7)])
    assert cursor[0] == 12
    assert ring[:, 2].tolist() == [4, 5, 6]  # entries 9, 10, 11 of all ever written


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_stream_out_counts_modulo_2_32(ordering: str) -> None:
    ring, cursor = np.full((4, 4), -1, np.int32), np.array([-2], np.int32)
    run_stream_out(ordering, ring, cursor, make_records({}), [(0, 9, token) for token in range(3)])
    assert cursor[0] == 1
    assert ring[:, 2].tolist() == [2, -1, 0, 1]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_stream_out_skips_a_slot_with_backpressure(ordering: str) -> None:
    slots = [{"epoch": 3, "flags": SlotFlag.BACKPRESSURE if slot in (4, 9) else 0} for slot in range(16)]
    ring, cursor = np.full((64, 4), -1, np.int32), np.zeros(1, np.int32)
    rows = [(slot, 50 + slot, 100 + slot) for slot in (*range(15, -1, -1), 4)]
    run_stream_out(ordering, ring, cursor, make_records(*slots), rows)
    entries = [
        ring_entry(slot, position, token, row, epoch=3, flags=0, logprobs=0)
        for row, (slot, position, token) in enumerate(rows)
        if slot not in (4, 9)
    ]
    assert len(entries) == cursor[0] == 14
    assert ring[:14].tobytes() == b"".join(entries) and (ring[14:] == -1).all()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_token_under_backpressure_is_not_counted_and_is_drawn_again(ordering: str) -> None:
    logits, position = random_floats(5, 3, 300), np.array([4, 5, 6], np.int32)
    settings = [
        {"temperature": 1.1, "seed": 40 + slot, "penalty_row": slot, "repetition": 1.3} for slot in range(3)
    ]
    free, slow = make_records(*settings), make_records(*settings)
    slow.view(RECORD)["flags"][1] = SlotFlag.PENALTIES | SlotFlag.BACKPRESSURE
    slots, counts = np.arange(3, dtype=np.int32), np.zeros((3, 300), np.int32)
    skipped = run_op(Op.SAMPLE_SLOTS, ordering, logits, slots, position, slow, counts)
    assert counts.sum(axis=1).tolist() == [1, 0, 1]
    alone = run_op(Op.SAMPLE_SLOTS, ordering, logits[1:2], slots[1:2], position[1:2], free, counts)
    assert alone[0] == skipped[1]
    assert np.argwhere(counts).tolist() == [[slot, skipped[slot]] for slot in range(3)]
