"""Which variant a step gets: capacities are few, follow from the limits, and hold no more rows than are wanted."""

from __future__ import annotations

import pytest

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.variants import Variants, list_token_capacities
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import UsageError
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf


def make_variants(**limits: int) -> Variants:
    gguf = read_gguf(FOLDER / "qwen3-q.gguf")
    return Variants(gguf, CpuBackend("canonical-1", threads=1), SequenceLimits(**limits))


@pytest.mark.parametrize(
    ("limits", "tokens"),
    [
        ({}, (1, 16, 128, 512)),
        ({"step_tokens": 100}, (1, 16, 100)),
        ({"slots": 8, "rows": 8}, (1, 16, 512)),
        ({"slots": 33, "rows": 33}, (1, 16, 48, 512)),
        ({"slots": 64, "rows": 64, "step_tokens": 64}, (1, 16, 64)),
        ({"slots": 4, "rows": 4, "step_tokens": 8}, (1, 8)),
    ],
)
def test_few_capacities_cover_every_step(limits: dict[str, int], tokens: tuple[int, ...]) -> None:
    assert list_token_capacities(SequenceLimits(ctx=64, **limits)) == tokens


def test_scheduler_variant_has_one_logit_row_per_slot() -> None:
    result = make_variants(ctx=64, slots=3, rows=3)
    assert result.find_fitting("prefill", 400, 2, 1).key == (512, 3, 3)
    assert result.find_fitting("decode", 3, 3, 3).key == (16, 3, 3)
    assert result.find_fitting("decode", 1, 1, 1).key == (1, 1, 1)
    with pytest.raises(UsageError, match="logits for at most 3 tokens, not 4"):
        result.find_fitting("prefill", 400, 2, 4)
    with pytest.raises(UsageError, match="a step accepts 1 to 512 tokens, not 513"):
        result.find_fitting("prefill", 513, 2, 1)


def test_single_token_step_can_bind_a_cached_prefix() -> None:
    result = make_variants(ctx=160, slots=2, rows=2)
    assert result.find_fitting("decode", 1, 1, 1, entries=2) is result.find_fitting("decode", 1, 1, 1)
    large = result.find_fitting("decode", 1, 1, 1, entries=10)
    assert large.key == (1, 1, 1, 2 * 10)
    assert large is result.find_fitting("decode", 1, 1, 1, entries=20)
    plan = large.program.plan
    assert plan.placements["step.table_entry"].size_bytes == 4 * 20


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"slots": 0}, "slots must be at least 1, not 0"),
        ({"pages": (4, 0)}, r"pages\[1\] must be at least 1, not 0"),
        ({"state_rows": 1}, "state_rows must be at least 2, not 1"),
        ({"step_tokens": 0}, "step_tokens must be at least 1, not 0"),
        ({"rows": 0}, "rows must be at least 1, not 0"),
        ({"page_tokens": 4}, "page_tokens must be at least 8, not 4"),
    ],
)
def test_contradictory_limits_print_one_line(limits: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SequenceLimits(ctx=64, **limits)


@pytest.mark.parametrize(
    ("ctx", "tokens"), [(1, 16), (131_072, 16), (131_073, 32), (262_144, 32), (1 << 21, 256), (1 << 30, 256)]
)
def test_page_size_grows_with_context(ctx: int, tokens: int) -> None:
    assert SequenceLimits(ctx=ctx).page_tokens == tokens
    assert SequenceLimits(ctx=ctx, page_tokens=64).page_tokens == 64


def test_limits_from_a_log_accept_lists_for_tuples() -> None:
    assert SequenceLimits(ctx=64, pages=[7, 3]) == SequenceLimits(ctx=64, pages=(7, 3))  # type: ignore[arg-type]
