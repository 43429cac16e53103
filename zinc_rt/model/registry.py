"""`general.architecture` -> the file that emits it. Adding an architecture: one file in arch/, one row here."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.errors import UnsupportedError
from zinc_rt.ir.graph import Stage
from zinc_rt.ir.verify import verify
from zinc_rt.model.arch import deepseek2, gemma3, gemma4, llama, mamba, mistral3, phi3, qwen, qwen_hybrid
from zinc_rt.model.builder import DeltaForm, Model, ModelBuilder, Overrides, SequenceLimits
from zinc_rt.model.gguf import GGUFFile

ARCHITECTURES: dict[str, Callable[[ModelBuilder], None]] = {
    "llama": llama.emit,
    "mistral3": mistral3.emit,
    "qwen2": qwen.emit,
    "qwen3": qwen.emit,
    "qwen3moe": qwen.emit,
    "qwen3next": qwen_hybrid.emit,
    "qwen35": qwen_hybrid.emit,
    "qwen35moe": qwen_hybrid.emit,
    "gemma3": gemma3.emit,
    "gemma4": gemma4.emit,
    "phi3": phi3.emit,
    "deepseek2": deepseek2.emit,
    "mamba": mamba.emit,
}


def build_model(
    gguf: GGUFFile,
    limits: SequenceLimits,
    stage: Stage = "both",
    *,
    delta_form: DeltaForm = "ids",
    overrides: Overrides | None = None,
) -> Model:
    """The verified graph of a model file. Raises UnsupportedError for an architecture without a row here,
    InputError for a file that contradicts itself."""
    require_architecture(gguf)
    emit = ARCHITECTURES[gguf.architecture]
    builder = ModelBuilder(gguf, limits, stage, delta_form=delta_form, overrides=overrides)
    emit(builder)
    model = builder.model()
    verify(model.graph)
    return model


def require_architecture(gguf: GGUFFile) -> None:
    """Raises UnsupportedError for an architecture without a row here."""
    if gguf.architecture not in ARCHITECTURES:
        raise UnsupportedError(
            f"{gguf.path}: architecture {gguf.architecture!r} is not built in this version",
            next="choose a model of one of: " + ", ".join(ARCHITECTURES),
        )
