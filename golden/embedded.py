"""The models that ship with the package, each with what llama.cpp computes for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zinc_rt.host.errors import InputError

FOLDER = Path(__file__).resolve().parent
STEMS = ("qwen35moe-q", "qwen3-q", "gemma4-q", "gemma4moe-q")  # the hybrid first: it exercises the most


@dataclass(frozen=True, slots=True)
class Pair:
    model: Path
    golden: Path


VOCABULARY = Pair(FOLDER / "sentencepiece.gguf", FOLDER / "sentencepiece.json")  # no model has one of its kind


def embedded() -> list[Pair]:
    """The embedded pairs. Raises InputError where an installation lost them."""
    return _pairs("")


def embedded_of_vulkan() -> list[Pair]:
    """The same models, each with digests of what a Vulkan driver computed of every node. Raises InputError as
    above."""
    return _pairs(".vulkan")


def _pairs(made_by: str) -> list[Pair]:
    pairs = [Pair(FOLDER / f"{stem}.gguf", FOLDER / f"{stem}{made_by}.npz") for stem in STEMS]
    missing = [path for pair in pairs for path in (pair.model, pair.golden) if not path.exists()]
    if missing:
        raise InputError(f"{missing[0]}: an embedded golden is missing", next="install the package again")
    return pairs
