"""Hyperparameters from GGUF metadata: `read_integer("attention.head_count")` reads
`<arch>.attention.head_count`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from zinc_rt.host.errors import InputError, UnsupportedError

T = TypeVar("T")

# Keys of llama.cpp (gguf's constants.py) that change results, each with the values that change nothing. A file
# with another value is refused if the reader of its architecture does not read the key.
RESULT_KEYS: dict[str, tuple[object, ...]] = {
    "attention.scale": (0.0,),
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.output_scale": (0.0, 1.0),
    "attention.temperature_scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "router_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "logit_scale": (0.0, 1.0),
    "expert_weights_scale": (0.0, 1.0),
    "expert_group_scale": (0.0, 1.0),
    "swin_norm": (False,),
    "use_parallel_residual": (False,),
}

# Keys that llama.cpp does not apply either.
IGNORED_KEYS: dict[str, tuple[str, ...]] = {
    "gpt-oss": ("expert_weights_scale",),
    "jamba": ("expert_weights_scale",),
}


class HyperParameters:
    """Typed access with the defaults of the facts sheet. A missing or ill-typed key raises an InputError that
    names it."""

    def __init__(self, architecture: str, metadata: Mapping[str, object], source: str) -> None:
        self.architecture = architecture
        self.metadata = metadata
        self.source = source
        self._read_keys: set[str] = set()

    def read_integer(self, key: str, default: int | None = None, *, layer: int | None = None) -> int:
        """Return an integer. With `layer`, the key may have one value for all layers or an array with one per
        layer."""
        return self._read(key, default, layer, _integer)

    def read_real(self, key: str, default: float | None = None) -> float:
        return self._read(key, default, None, _real)

    def read_boolean(self, key: str, default: bool | None = None) -> bool:
        return self._read(key, default, None, _boolean)

    def text(self, key: str, default: str | None = None) -> str:
        return self._read(key, default, None, _text)

    def array(self, key: str) -> list[int] | None:
        """Return the numbers of an array key, None if the key is absent."""
        return self._read_array(key, _integer)

    def texts(self, key: str) -> list[str] | None:
        """Return the texts of an array key, None if the key is absent."""
        return self._read_array(key, _text)

    def has(self, key: str) -> bool:
        return self._find(key) is not None

    def is_array(self, key: str) -> bool:
        return isinstance(self._find(key), list | tuple | np.ndarray)

    def check_unread_keys(self) -> None:
        """Raise UnsupportedError for a key that changes results but that the architecture's reader did not read.
        Call it once the model is built."""
        for key, neutral in RESULT_KEYS.items():
            value = self.metadata.get(f"{self.architecture}.{key}")
            if value is None or key in self._read_keys:
                continue
            if not isinstance(value, list | tuple | np.ndarray) and value in neutral:
                continue
            if key not in IGNORED_KEYS.get(self.architecture, ()):
                raise UnsupportedError(
                    f"{self.source}: {self.architecture}.{key} is {value!r}, which this version does not apply "
                    f"to architecture {self.architecture}",
                    next="results would differ from the model's: use a file without this key",
                )

    def _find(self, key: str) -> object:
        """Return a key's value, None if it is absent, and record that it was read."""
        self._read_keys.add(key)
        return self.metadata.get(f"{self.architecture}.{key}")

    def read_positive(self, key: str, default: int | None = None, *, layer: int | None = None) -> int:
        value = self.read_integer(key, default, layer=layer)
        if value <= 0:
            raise self._make_error(key, value, "a positive integer")
        return value

    def _read(self, key: str, default: T | None, layer: int | None, convert: Callable[[object], T | None]) -> T:
        value = self._find(key)
        if value is None:
            if default is None:
                raise InputError(
                    f"{self.source}: metadata key {self.architecture}.{key} is missing",
                    next="convert the model again with a current llama.cpp converter",
                )
            return default
        if layer is not None and isinstance(value, list | tuple | np.ndarray):
            if layer >= len(value):
                raise self._make_error(key, f"{len(value)} entries", f"an entry for layer {layer}")
            value = value[layer]
        return self._convert_value(key, value, convert)

    def _read_array(self, key: str, convert: Callable[[object], T | None]) -> list[T] | None:
        value = self._find(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple | np.ndarray):
            raise self._make_error(key, value, "an array")
        return [self._convert_value(key, item, convert) for item in value]

    def _convert_value(self, key: str, value: object, convert: Callable[[object], T | None]) -> T:
        converted = convert(value)
        if converted is None:
            raise self._make_error(key, value, convert.__name__.strip("_"))
        return converted

    def _make_error(self, key: str, saw: object, expected: str) -> InputError:
        return InputError(f"{self.source}: {self.architecture}.{key} is {saw!r}, expected {expected}")


def _integer(value: object) -> int | None:
    return int(value) if isinstance(value, int | np.integer | np.bool_) else None


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return float(value) if np.isfinite(value) else None


def _boolean(value: object) -> bool | None:
    return bool(value) if isinstance(value, bool | np.bool_) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
