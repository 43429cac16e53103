"""A prompt in one pass beside token by token: the gate, the offset, the comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.prefill import TOLERANCES, check_prefill_support, compare, prefill_sequence, prepare
from zinc_rt.engine.variants import EngineOptions
from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.host.settings import Settings
from zinc_rt.ir.op import Op
from zinc_rt.kernels.entry import Entry
from zinc_rt.model.gguf import read_gguf

TOKENS = [5, 6, 7, 8, 9, 10, 11]
MODELS = [pair.model for pair in list_embedded_pairs()]


class RestrictedBackend(CpuBackend):
    """Rejects the opcode that only batched prefill needs, and its router."""

    def __init__(self, ordering: str) -> None:
        super().__init__(ordering)
        self.kernels = replace(self.kernels, entries=tuple(map(restrict_entry, self.kernels.entries)))


def restrict_entry(entry: Entry) -> Entry:
    if entry.op not in (Op.FLASH_ATTN_BATCHED, Op.MOE_GATE_TOPK):
        return entry
    return replace(
        entry, rejects=lambda node, graph: f"no {node.op.name} today" if graph.stage == "prefill" else None
    )


@pytest.fixture(params=MODELS, ids=lambda path: path.stem)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(read_gguf(request.param), CpuBackend("canonical-1"), ctx=64, slots=2) as engine:
        yield engine


def test_batched_prefill_is_supported_for_every_embedded_model(engine: Engine) -> None:
    assert check_prefill_support(engine) == []


@pytest.mark.rest(keep=1)
def test_batched_and_sequential_logits_of_last_token_are_bit_identical(engine: Engine) -> None:
    wanted = engine.forward(TOKENS)[-1]
    assert wanted.any()
    for mode in ("on", "off"):
        sequence = engine.open()
        logits, check = prefill_sequence(engine, sequence, TOKENS, mode)
        assert logits.shape == (512,) and check is None and sequence.position == len(TOKENS)
        np.testing.assert_array_equal(logits, wanted)
        engine.release(sequence)


@pytest.mark.parametrize("mode", ["on", "off", "validate"])
@pytest.mark.parametrize("cut", [1, 3, 6])
@pytest.mark.rest(keep=1)
def test_prompt_can_continue_an_existing_sequence(engine: Engine, mode: str, cut: int) -> None:
    wanted = engine.forward(TOKENS)[-1]
    sequence = engine.open()
    prefill_sequence(engine, sequence, TOKENS[:cut], mode)
    logits, check = prefill_sequence(engine, sequence, TOKENS[cut:], mode)
    np.testing.assert_array_equal(logits, wanted)
    assert sequence.tokens == TOKENS
    if check is not None:
        assert check.ok and check.max_abs_diff == 0 and check.prompt_tokens == len(TOKENS) - cut


@pytest.mark.rest(keep=1)
def test_validate_leaves_the_sequence_usable(engine: Engine) -> None:
    wanted = engine.forward([*TOKENS, 3])[-1]
    sequence = engine.open()
    prefill_sequence(engine, sequence, TOKENS, "validate")
    np.testing.assert_array_equal(engine.step([(sequence, [3])], [0])[0], wanted)
    assert engine.open()  # the reference gave its slot back


@pytest.mark.rest(keep=1)
def test_output_head_runs_only_for_the_last_token(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    step = Engine.step

    def record_rows(self: Engine, batch, rows, **options) -> np.ndarray:
        asked.append(list(rows))
        return step(self, batch, rows, **options)

    monkeypatch.setattr(Engine, "step", record_rows)
    prefill_sequence(engine, engine.open(), TOKENS, "on")
    prefill_sequence(engine, engine.open(), TOKENS, "off")
    assert asked == [[6], [], [], [], [], [], [], [0]]


@pytest.mark.rest
def test_float32_stays_within_its_tolerance() -> None:
    for path in MODELS:
        with Engine(read_gguf(path), CpuBackend("float32-dequant"), ctx=64, slots=2) as engine:
            _, check = prefill_sequence(engine, engine.open(), TOKENS, "validate")
            assert check is not None and check.ok and check.tolerance == 1e-3


def test_gate_lists_every_reason() -> None:
    with Engine(read_gguf(MODELS[0]), RestrictedBackend("canonical-1"), ctx=1) as engine:
        reasons = check_prefill_support(engine)
        assert len(reasons) == 3
        assert reasons[0] == "the context of 1 token is too short for a step with two tokens"
        assert any("MOE_GATE_TOPK at ffn_moe_logits-0 and 3 more: no MOE_GATE_TOPK today" in r for r in reasons)
        assert any("FLASH_ATTN_BATCHED at attn_pregate-3: no FLASH_ATTN_BATCHED today" in r for r in reasons)
        for mode in ("on", "validate"):
            with pytest.raises(UnsupportedError, match="is unavailable") as error:
                prefill_sequence(engine, engine.open(), [1], mode)
            assert all(reason in str(error.value) for reason in reasons)
            assert "ZINC_BATCHED_PREFILL=off" in str(error.value)
            engine._free_slots = [0]
        logits, _ = prefill_sequence(engine, engine.open(), [1], "off")
        assert logits.any()


def test_missing_kernel_error_recommends_another_tier() -> None:
    backend = CpuBackend("canonical-1")
    entries = tuple(entry for entry in backend.kernels.entries if entry.op is not Op.ROPE)
    backend.kernels = replace(backend.kernels, entries=entries)
    with Engine(read_gguf(MODELS[0]), backend) as engine, pytest.raises(UnsupportedError, match="ROPE") as error:
        prefill_sequence(engine, engine.open(), [1, 2], "on")
    assert "next: --tier t_cpu" in str(error.value) and "ZINC_BATCHED_PREFILL" not in str(error.value)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("mode", ["on", "off", "validate"])
def test_prepare_builds_everything_in_advance(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine(read_gguf(MODELS[0]), CpuBackend("canonical-1"), ctx=64, slots=2) as engine:
        sequence = engine.open()
        prepare(engine, sequence, TOKENS, mode, decode=True)
        monkeypatch.setattr(engine.variants, "_build", lambda *asked: pytest.fail(f"built late: {asked}"))
        prefill_sequence(engine, sequence, TOKENS, mode)
        engine.step([(sequence, [1])], [0])


def test_validate_rejects_two_different_models() -> None:
    backend = CpuBackend("canonical-1")
    clamped = Engine(
        read_gguf(MODELS[0]), backend, slots=2, options=EngineOptions(settings=Settings(decode_topk=1))
    )
    with clamped as engine, pytest.raises(UnsupportedError, match="ZINC_QWEN36_DECODE_TOPK"):
        prefill_sequence(engine, engine.open(), TOKENS, "validate")


def test_oversized_prompt_runs_no_step(engine: Engine) -> None:
    sequence = engine.open()
    for tokens in ([1] * 65, [1, 512], []):
        with pytest.raises(UsageError):
            prefill_sequence(engine, sequence, tokens, "on")
    assert sequence.position == 0


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("count", [512, 513, 530])
def test_long_prompt_is_split_into_chunks(count: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny(path, "qwen35", context=600, layers=4)
    tokens = [index * 7 % 500 for index in range(count)]
    seen: list[int] = []
    with Engine(read_gguf(path), CpuBackend("float32-dequant"), slots=2) as engine:
        sequence = engine.open()
        logits, _ = prefill_sequence(engine, sequence, tokens, "on", advance=seen.append)
        assert sum(seen) == count and seen[0] == 512
        np.testing.assert_array_equal(logits, engine.forward(tokens, rows="last")[-1])


def test_compare_reports_largest_difference_and_both_values() -> None:
    reference = np.array([1.0, -2.0, 3.0], np.float32)
    check = compare(reference, np.array([1.0, -2.5, 3.25], np.float32), 7, 0.4)
    assert (check.index, check.reference, check.batched, check.max_abs_diff) == (1, -2.0, -2.5, 0.5)
    assert not check.ok
    assert check.line() == (
        "prefill validate: n_tokens=7 max_abs_diff=0.5 at idx=1 (ref=-2 batched=-2.5) tolerance=0.4 exceeded"
    )


def test_compare_handles_infinities_and_nans() -> None:
    inf, nan = float("inf"), float("nan")
    same = np.array([inf, -inf, 1.0], np.float32)
    assert compare(same, same.copy(), 1, 0.0).ok
    assert not compare(same, -same, 1, 1e-3).ok
    holed = np.array([inf, nan, 1.0], np.float32)
    for reference, batched in ((same, holed), (holed, same), (holed, holed)):
        check = compare(reference, batched, 1, 1e-3)
        assert not check.ok and check.index == 1


def test_every_ordering_has_a_tolerance() -> None:
    from zinc_rt.kernels.reference.arithmetic import ORDERINGS

    assert set(TOLERANCES) == set(ORDERINGS)
