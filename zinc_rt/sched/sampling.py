"""Sampling parameters and stop conditions of a request. They are validated once, on arrival."""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zinc_rt.host.errors import UsageError

MAX_CHOICES = 8
MAX_STOPS, MAX_STOP_BYTES = 4, 1024
MAX_STOP_TOKENS = 8  # a slot record has room for so many
MAX_BIASES = 300
MAX_LOGPROBS = 20
LEAST_REPETITION = 1e-6  # a float32 logit that is divided by it stays finite
MAX_TOP_K = (1 << 24) - 1  # a float32 holds every count up to here


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters and stop conditions. Temperature 0 selects the most likely token; top_k 0, top_p 1,
    min_p 0 and the penalties 0 and 1 disable the respective filter.

    `seed` None: 64 random bits, returned with the answer. `n`: number of answers. `stop`: strings that end
    the answer and are not shown. `stop_token_ids` end it like the model's end tokens; `ignore_eos` disables
    the latter, and `min_tokens` suppresses both at first. `logprobs`: for each token, and this many
    alternatives.
    """

    max_tokens: int = 128
    min_tokens: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        kept: tuple[tuple[str, Callable[[Any], object], Any], ...] = (
            ("stop", tuple, stop),
            ("stop_token_ids", tuple, self.stop_token_ids),
            ("logit_bias", dict, self.logit_bias),
        )
        for name, kind, argument in kept:
            try:
                object.__setattr__(self, name, kind(argument))
            except (TypeError, ValueError):
                wanted = "a mapping of token ids to numbers" if kind is dict else "a list"
                raise UsageError(f"{name} {argument!r}: expected {wanted}") from None

    def check(self, spelled: Callable[[str], str] = str) -> None:
        """Validate all values. Raises UsageError for a value out of range. `spelled`: the user's names of the
        parameters."""
        for name, wanted, fits in self._check_ranges():
            if not fits:
                value = getattr(self, name)
                shown = len(value) if isinstance(value, tuple | dict) and name != "stop" else value
                raise UsageError(f"{spelled(name)} {shown}: expected {wanted}")

    def _check_ranges(self) -> Iterator[tuple[str, str, bool]]:
        yield "max_tokens", "1 or more", _is_count(self.max_tokens, 1)
        yield "min_tokens", "0 to max_tokens", _is_count(self.min_tokens, 0, self.max_tokens)
        yield "temperature", "0 or more", _is_within(self.temperature, 0, sys.float_info.max)
        yield "top_k", "0 (off) or a positive number", _is_count(self.top_k, 0, MAX_TOP_K)
        yield "top_p", "more than 0, at most 1 (off)", _is_within(self.top_p, 0, 1) and self.top_p > 0
        yield "min_p", "0 (off) to 1", _is_within(self.min_p, 0, 1)
        yield "seed", "0 to 2^64 - 1", self.seed is None or _is_count(self.seed, 0, (1 << 64) - 1)
        yield "n", f"1 to {MAX_CHOICES}", _is_count(self.n, 1, MAX_CHOICES)
        texts = all(isinstance(text, str) and text for text in self.stop)
        room = texts and sum(len(text.encode(errors="replace")) for text in self.stop) <= MAX_STOP_BYTES
        stops = f"{MAX_STOPS} strings or fewer, none empty, together at most {MAX_STOP_BYTES} bytes"
        yield "stop", stops, room and len(self.stop) <= MAX_STOPS
        ids = all(_is_count(token, 0) for token in self.stop_token_ids)
        yield (
            "stop_token_ids",
            f"{MAX_STOP_TOKENS} ids or fewer",
            ids and len(self.stop_token_ids) <= MAX_STOP_TOKENS,
        )
        yield "presence_penalty", "-2 to 2", _is_within(self.presence_penalty, -2, 2)
        yield "frequency_penalty", "-2 to 2", _is_within(self.frequency_penalty, -2, 2)
        repetition = _is_within(self.repetition_penalty, LEAST_REPETITION, 2)
        yield "repetition_penalty", f"{LEAST_REPETITION:g} to 2; 1 is off", repetition
        biases = all(
            _is_count(token, 0) and _is_within(bias, -100, 100) for token, bias in self.logit_bias.items()
        )
        yield (
            "logit_bias",
            f"{MAX_BIASES} ids or fewer, each -100 to 100",
            biases and len(self.logit_bias) <= MAX_BIASES,
        )
        yield (
            "logprobs",
            f"0 to {MAX_LOGPROBS}",
            self.logprobs is None or _is_count(self.logprobs, 0, MAX_LOGPROBS),
        )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def penalised(self) -> bool:
        """Return whether sampling depends on the preceding tokens."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0 or self.repetition_penalty != 1

    def with_seed(self) -> Sampling:
        """Return a copy with a seed; 64 random bits unless it has one."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(64))


def _is_count(value: Any, minimum: int, maximum: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _is_within(value: Any, minimum: float, maximum: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and minimum <= value <= maximum
