"""The models included in the package, each with a golden from llama.cpp."""

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


def list_embedded_pairs() -> list[Pair]:
    """Return the embedded pairs. Raises InputError if one is missing from the installation."""
    return _list_pairs("")


def list_vulkan_pairs() -> list[Pair]:
    """Return the same models, each with digests of every node as computed by a Vulkan driver. Raises
    InputError as above."""
    return _list_pairs(".vulkan")


def _list_pairs(made_by: str) -> list[Pair]:
    pairs = [Pair(FOLDER / f"{stem}.gguf", FOLDER / f"{stem}{made_by}.npz") for stem in STEMS]
    missing = [path for pair in pairs for path in (pair.model, pair.golden) if not path.exists()]
    if missing:
        raise InputError(f"{missing[0]}: the embedded golden is missing", next="reinstall the package")
    return pairs
