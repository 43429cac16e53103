"""Whether a model fits: what is named as the most that does fits, and one more does not."""

from __future__ import annotations

import re

import pytest

from zinc_rt.cli.inspect import main as inspect
from zinc_rt.engine.memory_fit import count_step_tokens, fit_model
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host.errors import InputError
from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.mem.residency import Residency
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model

MODEL = FOLDER / "qwen3-q.gguf"
MEMORY_BYTES = 24 << 20


def fit_graph(ctx: int, slots: int) -> Residency:
    limits = SequenceLimits(ctx=ctx, slots=slots)
    return fit_model(build_model(read_gguf(MODEL), limits, "prefill"), KERNELS, MEMORY_BYTES, tokens=16, rows=1)


def test_error_names_longest_context_and_most_slots_that_fit() -> None:
    with pytest.raises(InputError, match="must be in VRAM") as refused:
        fit_graph(1024, 32)
    match = re.fullmatch(r"(?:--ctx (\d+) fits)?(?:, or )?(?:--slots (\d+) fits)?", refused.value.next)
    assert match is not None, refused.value.next
    ctx, slots = (int(group) for group in match.groups())
    assert 16 <= ctx < 1024 and 1 <= slots < 32
    assert fit_graph(ctx, 32).host == fit_graph(1024, slots).host == frozenset()
    for more in ((ctx + 16, 32), (1024, slots + 1)):
        with pytest.raises(InputError):
            fit_graph(*more)


def test_model_too_large_for_any_context_is_reported() -> None:
    model = build_model(read_gguf(MODEL), SequenceLimits(ctx=64), "prefill")
    with pytest.raises(InputError) as refused:
        fit_model(model, KERNELS, 1 << 20, tokens=16, rows=1)
    assert "fewer bits a weight" in refused.value.next


def test_lookahead_tokens_count_toward_the_step() -> None:
    gguf = read_gguf(MODEL)
    assert count_step_tokens(gguf, SequenceLimits(ctx=64, slots=4), 3) == 16
    with pytest.raises(InputError, match="a step has only 512") as refused:
        count_step_tokens(gguf, SequenceLimits(ctx=64, slots=64), 9)
    assert refused.value.next.startswith("--lookahead 7 fits")


def test_inspect_shows_memory_placement(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--model", str(FOLDER / "qwen35moe-q.gguf"), "--vram", "16", "--slots", "2", "--lookahead", "3"]
    assert inspect([*argv, "--experts", "gtt"]) == 0
    output = capsys.readouterr().out
    assert (
        "slots: 2, tokens in a step: 8" in output and "in host memory: the experts of 4 layers (0 to 3)" in output
    )
    assert inspect([*argv, "--vram", "0.001"]) == 2
    assert "must be in VRAM" in capsys.readouterr().err
