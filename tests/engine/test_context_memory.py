"""A context that cannot fit is refused in a sentence, before anything of its length is made."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from zinc_rt.cli.main import main
from zinc_rt.engine.memory_fit import TABLE_COPIES, check_context_memory
from zinc_rt.engine.resident import parse_capacity
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.host.errors import UsageError
from zinc_rt.mem.plan import plan_memory
from zinc_rt.model.builder import SequenceLimits
from zinc_rt.model.gguf import read_gguf
from zinc_rt.model.registry import build_model

MODEL = FOLDER / "qwen3-q.gguf"
GIB = 1 << 30
LONG = 8192  # tokens


def set_machine_memory(monkeypatch: pytest.MonkeyPatch, total: float, free: float | None = None) -> None:
    memory = SimpleNamespace(total=total, available=total if free is None else free)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("ctx", [100_000_000, 2_000_000_000])
@pytest.mark.parametrize(
    "command",
    [
        ["run", "--tokens", "5,6", "--tier", "t_cpu"],
        ["run", "--tokens", "5,6", "--tier", "t1", "--device", "sim"],
        ["inspect"],
        ["perf", "predict"],
    ],
    ids=" ".join,
)
def test_oversized_context_is_rejected_in_one_line(
    command: list[str], ctx: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_machine_memory(monkeypatch, 16 * GIB)
    assert main([*command, "--model", str(MODEL), "--ctx", str(ctx)]) == 2
    errors = capsys.readouterr().err
    sentence = rf"--ctx {ctx} needs about [\d,.]+ GiB of memory for this model, but this machine has 16.0 GiB"
    assert len(re.findall(sentence, errors)) == 1
    assert "next: use a smaller --ctx: about " in errors and "Traceback" not in errors


def context_bytes(ctx: int) -> tuple[int, int]:
    """Return the bytes of angle tables, and of caches with their page table."""
    model = build_model(read_gguf(MODEL), SequenceLimits(ctx=ctx), "decode")
    plan = plan_memory(model.graph, capacity=parse_capacity((1, 1, 1)))
    kept = [item for name, item in plan.allocations.items() if name.startswith(("state/", "table/"))]
    return sum(array.nbytes for array in model.constants.values()), sum(item.size_bytes for item in kept)


def test_estimate_matches_the_memory_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    gguf, limits = read_gguf(MODEL), SequenceLimits(ctx=LONG)
    tables, caches = context_bytes(LONG)
    need = TABLE_COPIES * tables + caches
    set_machine_memory(monkeypatch, 1.01 * need)
    check_context_memory(gguf, limits, state=True)
    set_machine_memory(monkeypatch, 0.99 * need)
    with pytest.raises(UsageError, match=rf"about {8100:,} tokens fit"):
        check_context_memory(gguf, limits, state=True)
    check_context_memory(gguf, limits, state=False)  # the caches lie on a card


def test_tables_need_free_memory_and_caches_only_their_used_part(monkeypatch: pytest.MonkeyPatch) -> None:
    gguf, limits = read_gguf(MODEL), SequenceLimits(ctx=LONG)
    tables, _ = context_bytes(LONG)
    set_machine_memory(monkeypatch, GIB, free=1.01 * TABLE_COPIES * tables)
    check_context_memory(gguf, limits, state=True)
    set_machine_memory(monkeypatch, GIB, free=0.99 * TABLE_COPIES * tables)
    with pytest.raises(UsageError, match=r"needs about .* are free"):
        check_context_memory(gguf, limits, state=True)


def test_context_memory_scales_with_slots_and_ignores_cacheless_models(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tables, caches = context_bytes(LONG)
    set_machine_memory(monkeypatch, 1.01 * (TABLE_COPIES * tables + caches))
    with pytest.raises(UsageError, match="--ctx 8192"):
        check_context_memory(read_gguf(MODEL), SequenceLimits(ctx=LONG, slots=2), state=True)
    write_tiny(tmp_path / "mamba.gguf", "mamba")
    set_machine_memory(monkeypatch, 1)
    check_context_memory(read_gguf(tmp_path / "mamba.gguf"), SequenceLimits(ctx=2_000_000_000), state=True)
