"""Small faults that would like to pass as rounding, against llama.cpp's goldens and models of 24 layers.

Eight by default, all of them with --slow. What is wrong is in the graph, of both stages, of decode alone or of one
layer; in what is resident; or in a value on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from planted import PlantedFault, Rewrite, change_attribute, change_result, change_rope_base, has_several_tokens
from seen import Planting, Validate, ValidateOutput

from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.engine.engine import Engine
from zinc_rt.golden.capture import Selection, capture_run
from zinc_rt.golden.format import write_golden
from zinc_rt.golden.tiny_models.architectures import GENERATORS
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.lower import LoweredGraph
from zinc_rt.model.gguf import read_gguf
from zinc_rt.validate import runner

DEEP = 24
IDS = [(37 * index + 11) % 512 for index in range(24)]
STEPS = 4
SCORES = ("FLASH_ATTN", "MLA_FLASH_ATTN")
CAPPED = ("SOFTCAP",)
NORMS = ("RMS_NORM", "SSM_GATED_NORM")

NOTHING = PlantedFault()


@dataclass(frozen=True, slots=True)
class DriftAttempt:
    name: str
    model: str  # a golden's stem, or deep-ARCHITECTURE
    graph: Rewrite = lambda graph: graph
    plant: PlantedFault = NOTHING

    def __str__(self) -> str:
        return f"{self.name} in {self.model}"


def multiply_by(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


def is_one_token(program: LoweredGraph) -> bool:
    return not has_several_tokens(program)


def scale_part_of(label: str, first: int, last: int, factor: float, *, decode: bool = False) -> PlantedFault:
    """Multiply some columns of a value, for example one head, by a factor."""

    def scale_part(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array.reshape(len(array), -1)[:, first:last] *= np.float32(factor)
        return array

    return change_result(label, scale_part, "MATMUL", only=is_one_token if decode else lambda program: True)


def list_attempts() -> Iterator[DriftAttempt]:
    """The first eight run by default: one of each kind, including the two that once passed."""
    scale, eps = "attention scale", "epsilon"
    yield DriftAttempt(
        f"{scale} x 1.002, decode only",
        "llama-f32",
        change_attribute(SCORES, "scale", multiply_by(1.002), stage="decode"),
    )
    yield DriftAttempt(f"{eps} x 10", "deep-llama", change_attribute(NORMS, "eps", multiply_by(10)))
    yield DriftAttempt(f"{scale} x 1.0005", "qwen3-f32", change_attribute(SCORES, "scale", multiply_by(1.0005)))
    yield DriftAttempt("rope base x 1.001", "llama-f32", plant=change_rope_base(1.001))
    yield DriftAttempt(
        "window one short", "gemma3-f32", change_attribute(SCORES, "window", lambda w: w and w - 1, stage="decode")
    )
    yield DriftAttempt("softcap x 1.001", "gemma4-f32", change_attribute(CAPPED, "cap", multiply_by(1.001)))
    yield DriftAttempt(
        "v of one head x 1.001, decode only",
        "mixtral-f32",
        plant=scale_part_of("Vcur-1", 0, 16, 1.001, decode=True),
    )
    yield DriftAttempt(
        f"{eps} x 2 in layer 1", "mamba-f32", change_attribute(NORMS, "eps", multiply_by(2), layer=1)
    )
    # attention scales
    for model in ("llama-f32", "gemma3-f32", "gemma4-f32", "deepseek2-f32", "qwen35-f32", "phi3long-f32"):
        for factor in (1.0005, 1.01):
            yield DriftAttempt(
                f"{scale} x {factor}", model, change_attribute(SCORES, "scale", multiply_by(factor))
            )
        decode = change_attribute(SCORES, "scale", multiply_by(0.9995), stage="decode")
        yield DriftAttempt(f"{scale} x 0.9995, decode only", model, decode)
    for model in ("deep-qwen3", "deep-gemma4", "deep-mixtral", "deep-deepseek2"):
        yield DriftAttempt(
            f"{scale} x 1.001 in layer 13", model, change_attribute(SCORES, "scale", multiply_by(1.001), layer=13)
        )
        decode = change_attribute(SCORES, "scale", multiply_by(1.002), stage="decode")
        yield DriftAttempt(f"{scale} x 1.002, decode only", model, decode)
    # epsilons
    for model in (
        "llama-f32",
        "qwen35-f32",
        "gemma4-f32",
        "deep-qwen3",
        "deep-gemma4",
        "deep-mamba",
        "deep-qwen35",
    ):
        for factor in (2, 10, 100):
            yield DriftAttempt(f"{eps} x {factor}", model, change_attribute(NORMS, "eps", multiply_by(factor)))
    for model in ("llama-f32", "deep-mamba"):
        yield DriftAttempt(
            f"{eps} x 10, decode only", model, change_attribute(NORMS, "eps", multiply_by(10), stage="decode")
        )
    for layer in (0, 11, 23):
        yield DriftAttempt(
            f"{eps} x 10 in layer {layer}",
            "deep-llama",
            change_attribute(NORMS, "eps", multiply_by(10), layer=layer),
        )
    # positions, windows, parts of values
    yield DriftAttempt("rope base x 1.001", "deep-llama", plant=change_rope_base(1.001))
    yield DriftAttempt("rope base x 1.0001", "llama-f32", plant=change_rope_base(1.0001))
    yield DriftAttempt("window one long", "gemma3-f32", change_attribute(SCORES, "window", lambda w: w and w + 1))
    yield DriftAttempt("window one short", "gemma4-f32", change_attribute(SCORES, "window", lambda w: w and w - 1))
    yield DriftAttempt(
        "window one long, decode only",
        "deep-gemma3",
        change_attribute(SCORES, "window", lambda w: w and w + 1, stage="decode"),
    )
    yield DriftAttempt("softcap x 1.0005", "gemma4-f32", change_attribute(CAPPED, "cap", multiply_by(1.0005)))
    for layer in (1, 20):
        yield DriftAttempt(
            f"v of one head x 1.0005, layer {layer}",
            "deep-llama",
            plant=scale_part_of(f"Vcur-{layer}", 16, 32, 1.0005),
        )
    yield DriftAttempt(
        "one column of the attention's output x 1.001", "qwen3-f32", plant=scale_part_of("attn_out-2", 7, 8, 1.001)
    )
    yield DriftAttempt(
        "mamba's output x 1.0001, decode only",
        "deep-mamba",
        plant=scale_part_of("mamba_out-17", 0, 64, 1.0001, decode=True),
    )
    yield DriftAttempt("an FFN x 1.00001", "deep-llama", plant=scale_part_of("ffn_out-12", 0, 64, 1.00001))


ALL = tuple(list_attempts())


@dataclass(frozen=True, slots=True)
class DeepModels:
    """The folder of the models; deep models are written at first use."""

    goldens: Path
    own: Path

    def model_and_golden(self, name: str) -> tuple[str, str]:
        """A model and its golden."""
        folder = self.own if name.startswith("deep-") else self.goldens
        model, golden = folder / f"{name}.gguf", folder / f"{name}.npz"
        if not model.exists():
            kind = name.removeprefix("deep-")
            if kind.endswith("-q"):
                write_tiny(model, kind.removesuffix("-q"), seed=3, layers=DEEP, quant="q", hidden=256)
            else:
                write_tiny(model, kind, seed=3, layers=DEEP)
            self._write_golden(model, golden)
        return str(model), str(golden)

    def _write_golden(self, model: Path, golden: Path) -> None:
        """A golden that `validate` treats as another engine's: computed by BLAS token by token, which sums in a
        different order.
        """
        with Engine(read_gguf(model), CpuBackend("float32-dequant"), ctx=256) as engine:
            seen = capture_run(engine, IDS, Selection(("l_out-*",)), steps=STEPS, prefill="stepwise")
        count = len(IDS)
        arrays = {"ids": np.array(IDS), "logits": seen.logits[:count], "greedy_logits": seen.logits[count:]}
        arrays["greedy_tokens"] = np.array(seen.generated)
        arrays["l_out"] = np.stack([value.reshape(count, -1) for value in seen.layers.values()])
        write_golden(golden, arrays, {"n_ctx": 256})


@pytest.fixture(scope="module")
def deep_models(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> DeepModels:
    return DeepModels(data_dir / "goldens", tmp_path_factory.mktemp("deep"))


def judge_pair(models: DeepModels, validate: Validate, name: str, *options: str) -> ValidateOutput:
    model, golden = models.model_and_golden(name)
    return validate(
        "--model", model, "--golden", golden, "--no-cache", "--tiers", "t1", "--timeout", "60", *options
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attempt" in metafunc.fixturenames:
        slow = [pytest.param(item, marks=pytest.mark.slow, id=str(item)) for item in ALL[8:]]
        metafunc.parametrize("attempt", [*(pytest.param(item, id=str(item)) for item in ALL[:8]), *slow])


@pytest.mark.rest(keep=12)
@pytest.mark.slow(keep=30)
def test_small_fault_does_not_pass_as_drift(
    attempt: DriftAttempt,
    deep_models: DeepModels,
    plant_fault: Planting,
    run_validate: Validate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant_fault(attempt.plant)
    monkeypatch.setattr(runner, "transform", lambda layers: attempt.graph)
    seen = judge_pair(deep_models, run_validate, attempt.model)
    assert seen.exit == 1 and "isolation" in seen.names_with_status("fail")
    assert not [result for result in seen.results if "drift" in result["reason"]], "nothing is forgiven"


@pytest.mark.rest(keep=5)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(f"{kind}{quant}", marks=() if (kind, quant) == ("gemma4moe", "") else pytest.mark.slow)
        for kind in GENERATORS
        for quant in ("", "-q")
        if (kind, quant)
        != ("gemma4moe", "-q")  # rounding flips its experts: 24 layers of it can be held to nobody
    ],
)
@pytest.mark.slow(keep=12)
def test_sound_deep_model_passes(
    kind: str, deep_models: DeepModels, plant_fault: Planting, run_validate: Validate
) -> None:
    plant_fault(NOTHING)
    seen = judge_pair(deep_models, run_validate, f"deep-{kind}")
    assert seen.exit == 0 and seen.result("isolation")["status"] == "pass"
