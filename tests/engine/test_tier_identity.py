"""T1 and T2, on the simulated device, give T-CPU's bits: every value of every layer, prompt and decoded tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model.goldens import SECOND_STEMS, STEMS, find_cached_model, find_golden_model
from support import Counts

from zinc_rt.engine.devices import choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.ir.graph import Node
from zinc_rt.model.gguf import read_gguf

MODELS = (*STEMS, *SECOND_STEMS)
FAMILIES = ("deepseek2", "mamba", "gemma4", "qwen3next")  # what the embedded ones of the tests below have not
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8]  # more than one page, and no power of two


def run_observed(
    model: Path, tier: str, steps: int, ordering: str, kv_type: str = "f32"
) -> tuple[dict[str, np.ndarray], list[int], list[str]]:
    """Return every value by step and buffer, the greedy tokens, and the device's findings."""
    values: dict[str, np.ndarray] = {}
    choice = choose_tier(tier, "sim" if tier != "t_cpu" else "auto")
    with Engine(read_gguf(model), open_backend(choice, ordering, threads=1), kv_type=kv_type) as engine:
        before = sanitizer_findings(engine)  # by others that share the device
        sequence, tokens = engine.open(), list(PROMPT)
        generated: list[int] = []
        for step in range(steps + 1):

            def record_value(node: Node, name: str, array: np.ndarray, step: int = step) -> None:
                values[f"{step} {node.op.name} {name}"] = array.copy()

            logits = engine.extend(sequence, tokens, tap=record_value)
            values[f"{step} logits"] = logits
            tokens = [int(logits[-1].argmax())]
            generated += tokens
        return values, generated, [item for item in sanitizer_findings(engine) if item not in before]


def run_unobserved(
    model: Path, tier: str, steps: int, ordering: str, kv_type: str = "f32", **device: Any
) -> list[np.ndarray]:
    """Return the logits of each step with the production graph, fused if the tier's kernels fuse. `device`:
    options of the simulated device.
    """
    choice = choose_tier(tier, "sim", **device)
    with Engine(read_gguf(model), open_backend(choice, ordering, threads=1), kv_type=kv_type) as engine:
        before = sanitizer_findings(engine)
        sequence, tokens, logits = engine.open(), list(PROMPT), []
        for _ in range(steps + 1):
            logits.append(engine.extend(sequence, tokens))
            tokens = [int(logits[-1][-1].argmax())]
        assert [item for item in sanitizer_findings(engine) if item not in before] == []
        return logits


def sanitizer_findings(engine: Engine) -> list[str]:
    """Return the findings of a simulated device."""
    instrument = engine.backend.instrument
    return [finding.text for finding in instrument.findings()] if instrument is not None else []


def assert_tiers_agree(
    model: Path, tier: str, steps: int, ordering: str = "canonical-1", kv_type: str = "f32"
) -> None:
    want, tokens, _ = run_observed(model, "t_cpu", steps, ordering, kv_type)
    got, same_tokens, findings = run_observed(model, tier, steps, ordering, kv_type)
    assert findings == []
    assert got.keys() == want.keys() and len(got) > 20 * (steps + 1)
    different = [name for name in want if want[name].tobytes() != got[name].tobytes()]
    assert not different, f"first of {len(different)}: {different[0]}"
    assert same_tokens == tokens
    for step, logits in enumerate(run_unobserved(model, tier, steps, ordering, kv_type)):
        assert logits.tobytes() == want[f"{step} logits"].tobytes(), f"fused, step {step}"


@pytest.mark.parametrize("tier", ["t1", "t2"])
def test_embedded_model_is_bit_identical(tier: str, slow_counts: Counts) -> None:
    assert_tiers_agree(FOLDER / "qwen3-q.gguf", tier, slow_counts(2, 32))


@pytest.mark.rest
def test_embedded_recurrent_moe_model_is_bit_identical(slow_counts: Counts) -> None:
    assert_tiers_agree(FOLDER / "qwen35moe-q.gguf", "t1", slow_counts(2, 32))


@pytest.mark.parametrize(
    ("tier", "model"), [("t1", "qwen3-q"), pytest.param("t2", "qwen35moe-q", marks=pytest.mark.slow)]
)
@pytest.mark.rest
def test_embedded_model_with_8_bit_activations_is_bit_identical(
    tier: str, model: str, slow_counts: Counts
) -> None:
    assert_tiers_agree(FOLDER / f"{model}.gguf", tier, slow_counts(1, 32), "canonical-1-q8")


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.rest
@pytest.mark.slow(keep=2)
def test_model_of_each_other_family_is_bit_identical(architecture: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, architecture, hidden=32)
    assert_tiers_agree(path, "t1", 1)


@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.rest
def test_simulated_cache_coherence_does_not_change_the_bits(tier: str, slow_counts: Counts) -> None:
    """A stale line that a step loaded would show: no invalidation is missing."""
    model = FOLDER / "qwen3-q.gguf"
    want, _, _ = run_observed(model, "t_cpu", 2, "canonical-1")
    for seed in range(slow_counts(1, 3)):
        got = run_unobserved(model, tier, 2, "canonical-1", coherence="caches", reorder=seed)
        for step, logits in enumerate(got):
            assert logits.tobytes() == want[f"{step} logits"].tobytes(), f"seed {seed}, step {step}"


@pytest.mark.rest
def test_navi_44_runs_navi_48_kernels() -> None:
    model = FOLDER / "qwen3-q.gguf"
    want, _, _ = run_observed(model, "t_cpu", 1, "canonical-1")
    for step, logits in enumerate(run_unobserved(model, "t1", 1, "canonical-1", chip="gfx1200")):
        assert logits.tobytes() == want[f"{step} logits"].tobytes(), f"step {step}"


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.parametrize("model", MODELS)
def test_tiny_models_are_bit_identical(model: str, tier: str, data_dir: Path) -> None:
    assert_tiers_agree(find_golden_model(data_dir, model), tier, 32)


@pytest.mark.slow
@pytest.mark.parametrize("model", [name for name in MODELS if name.endswith("-q")])
def test_tiny_models_with_8_bit_activations_are_bit_identical(model: str, data_dir: Path) -> None:
    assert_tiers_agree(find_golden_model(data_dir, model), "t1", 8, "canonical-1-q8")


@pytest.mark.slow
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("tier", ["t1", "t2"])
@pytest.mark.parametrize("model", MODELS)
def test_tiny_models_with_smaller_caches_are_bit_identical(
    model: str, tier: str, kv_type: str, data_dir: Path
) -> None:
    assert_tiers_agree(find_cached_model(data_dir, model, kv_type), tier, 4, kv_type=kv_type)
