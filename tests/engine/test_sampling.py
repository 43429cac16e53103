"""What a request may ask of its answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.sampling import Sampling


def test_defaults_and_range_limits_are_accepted() -> None:
    Sampling().check()
    Sampling(
        max_tokens=1, min_tokens=1, temperature=0, top_k=1, top_p=1e-6, min_p=1, seed=2**64 - 1, n=8,
        stop=["a"] * 4, stop_token_ids=range(8), presence_penalty=-2, frequency_penalty=2, repetition_penalty=2,
        logit_bias=dict.fromkeys(range(300), -100), logprobs=20,
    ).check()  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "max_tokens 0: expected 1 or more"),
        ({"max_tokens": 2.5}, "max_tokens 2.5: expected 1 or more"),
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens 5: expected 0 to max_tokens"),
        ({"temperature": float("nan")}, "temperature nan: expected 0 or more"),
        ({"temperature": float("inf")}, "temperature inf: expected 0 or more"),
        ({"temperature": "1"}, "temperature 1: expected 0 or more"),
        ({"top_k": -1}, "top_k -1: expected 0"),
        ({"top_k": True}, "top_k True: expected 0"),
        ({"top_p": 0}, "top_p 0: expected more than 0, at most 1"),
        ({"min_p": 1.5}, "min_p 1.5: expected 0"),
        ({"seed": 2**64}, "expected 0 to 2^64 - 1"),
        ({"n": 9}, "n 9: expected 1 to 8"),
        ({"stop": ["a"] * 5}, "expected 4 strings or fewer"),
        ({"stop": ""}, "none empty"),
        ({"stop": ["é" * 513]}, "together at most 1024 bytes"),
        ({"stop_token_ids": range(9)}, "stop_token_ids 9: expected 8 ids or fewer"),
        ({"presence_penalty": 2.1}, "presence_penalty 2.1: expected -2 to 2"),
        ({"frequency_penalty": -2.1}, "frequency_penalty -2.1: expected -2 to 2"),
        ({"repetition_penalty": 0}, "repetition_penalty 0: expected 1e-06 to 2"),
        ({"logit_bias": {3: 101}}, "expected 300 ids or fewer, each -100 to 100"),
        ({"logit_bias": {-3: 1}}, "expected 300 ids or fewer"),
        ({"logprobs": 21}, "logprobs 21: expected 0 to 20"),
    ],
)
def test_out_of_range_value_is_reported_with_the_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        Sampling(**settings).check()
    assert message in str(raised.value)


@pytest.mark.parametrize(("name", "value"), [("stop", 5), ("stop_token_ids", 5), ("logit_bias", [1, 2])])
def test_wrong_container_type_is_rejected_immediately(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} .*: expected a "):
        Sampling(**{name: value})


def test_error_uses_the_command_line_spelling() -> None:
    with pytest.raises(UsageError, match="--top-k -1: expected"):
        Sampling(top_k=-1).check(lambda name: f"--{name.replace('_', '-')}")


def test_single_stop_string_needs_no_list() -> None:
    assert Sampling(stop="end").stop == ("end",)


def test_sampling_is_immutable() -> None:
    bias = {1: 2.0}
    sampling = Sampling(logit_bias=bias)
    bias[1] = 3.0
    assert sampling.logit_bias == {1: 2.0} and sampling == Sampling(logit_bias={1: 2.0}) and hash(sampling)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampling.top_k = 3  # type: ignore[misc]


def test_missing_seed_is_generated_and_given_seed_is_kept() -> None:
    first, second = Sampling().with_seed().seed, Sampling().with_seed().seed
    assert first is not None and first != second and 0 <= first < 2**64
    assert Sampling(seed=0).with_seed().seed == 0
