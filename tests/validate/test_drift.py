"""Rounding that grew along depth is told from a fault: the checks themselves, on values made for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.golden.capture import CapturedRun
from zinc_rt.golden.embedded import list_embedded_pairs
from zinc_rt.validate import limits
from zinc_rt.validate.check_result import CheckResult, ValueMeasure
from zinc_rt.validate.checks import CheckedPair, Reference
from zinc_rt.validate.command import main
from zinc_rt.validate.drift import IsolatedRuns, check_isolation, choose_solo_limit, could_be_drift, ignore_drift
from zinc_rt.validate.limits import ALONE, ALONE_OF, DRIFT_GROWTH, GOLDEN, rounding_error
from zinc_rt.validate.measure import Measure

PAIR = list_embedded_pairs()[1]
SUBJECT = CheckedPair("m", "t1", "m.npz", GOLDEN, "again")
PROMPT, STEPS, WIDTH = 12, 3, 64


def run_validate(golden: Path) -> int:
    return main(["--model", str(PAIR.model), "--golden", str(golden), "--no-cache"])


def rewrite_golden(path: Path, **changed: np.ndarray) -> Path:
    with np.load(PAIR.golden) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(path, **{**arrays, **changed})  # type: ignore[arg-type]
    return path


@pytest.fixture
def tight_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain limit, set between the error of one layer and the total error of three."""
    monkeypatch.setattr(limits, "GOLDEN", limits.Limit(max_abs=4.7e-6, why="for this test"))
    monkeypatch.setattr(limits, "OF_PEAK", 0.0)


@pytest.mark.rest
@pytest.mark.usefixtures("tight_limit")
def test_drift_within_rounding_of_each_isolated_layer_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_validate(PAIR.golden) == 0
    shown = capsys.readouterr().out
    assert "pass  l_out-1..2: drift: each layer alone is within rounding" in shown
    assert "isolation: each layer alone, prompt and decode: spread 0.14 of 1.5 (healthy 0.7)" in shown


@pytest.mark.rest
@pytest.mark.usefixtures("tight_limit")
def test_one_isolated_layer_off_fails_the_drift_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(PAIR.golden) as archive:
        l_out = archive["l_out_deq"].copy()
    l_out[1] *= np.float32(1 + 1e-5)  # near enough to look like rounding
    assert run_validate(rewrite_golden(tmp_path / "moved.npz", l_out_deq=l_out)) == 1
    shown = capsys.readouterr().out
    assert "drift" not in shown and "l_out-1 alone, prefill, is off in its spread" in shown


@pytest.mark.rest
def test_large_difference_is_never_drift(tmp_path: Path) -> None:
    with np.load(PAIR.golden) as archive:
        logits = archive["logits_deq"] * np.float32(1.01)
    assert run_validate(rewrite_golden(tmp_path / "scaled.npz", logits_deq=logits)) == 1


@pytest.mark.rest
def test_golden_without_layers_skips_isolation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(PAIR.golden) as archive:
        arrays = {name: archive[name] for name in archive.files if not name.startswith("l_out")}
    np.savez(tmp_path / "logits.npz", **arrays)  # type: ignore[arg-type]
    assert run_validate(tmp_path / "logits.npz") == 0
    assert "isolation" not in capsys.readouterr().out


# --- each layer alone ---------------------------------------------------------------------------------------


def make_stream(seed: int = 0) -> dict[str, np.ndarray]:
    """Three layers that each add to a stream, for the prompt and some more tokens."""
    random = np.random.default_rng(seed)
    added = random.standard_normal((3, PROMPT + STEPS, WIDTH)).astype(np.float32)
    return {f"l_out-{layer}": value for layer, value in enumerate(np.cumsum(added, axis=0))}


def round_values(values: dict[str, np.ndarray], seed: int = 1, amount: float = 2.0**-24) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        label: (value * (1 + amount * random.uniform(-1, 1, value.shape))).astype(np.float32)
        for label, value in values.items()
    }


def make_isolated(
    batched: dict[str, np.ndarray], stepwise: dict[str, np.ndarray], *, same_bits: bool
) -> IsolatedRuns:
    logits = np.ones((PROMPT + STEPS, 8), np.float32)
    return IsolatedRuns(
        CapturedRun(logits, batched), CapturedRun(logits.copy(), stepwise), make_stream(), PROMPT, same_bits
    )


REFERENCE = Reference(np.ones((PROMPT, 8), np.float32), {})


def test_rounding_in_every_layer_passes() -> None:
    own = round_values(make_stream())
    assert check_isolation(SUBJECT, make_isolated(own, own, same_bits=True), REFERENCE, ALONE).status == "pass"


@pytest.mark.parametrize("factor", [1 + 1e-6, 1 - 1e-6])
def test_factor_far_below_rounding_is_detected(factor: float) -> None:
    own = round_values(make_stream())
    added = own["l_out-1"] - own["l_out-0"]
    own["l_out-1"] = (own["l_out-1"].astype(np.float64) + added * (factor - 1)).astype(np.float32)
    result = check_isolation(SUBJECT, make_isolated(own, own, same_bits=True), REFERENCE, ALONE)
    assert (
        result.status == "fail" and result.first_bad["node"] == "l_out-1" and result.first_bad["measure"] == "gain"
    )
    assert result.measure["spread"] <= ALONE.spread, "no other measure would have"


def test_one_wrong_token_is_detected_among_many() -> None:
    own = round_values(make_stream())
    own["l_out-2"][5] += np.float32(8 * ALONE.token * rounding_error(WIDTH)) * np.where(
        np.arange(WIDTH) % 2, 1, -1
    )
    result = check_isolation(SUBJECT, make_isolated(own, own, same_bits=True), REFERENCE, ALONE)
    assert result.status == "fail" and result.first_bad["node"] == "l_out-2"


def test_decode_step_after_prompt_must_be_bit_exact_with_one_pass() -> None:
    own, other = round_values(make_stream()), round_values(make_stream())
    other["l_out-0"][PROMPT + 1, 3] = np.nextafter(other["l_out-0"][PROMPT + 1, 3], np.float32(9))
    result = check_isolation(SUBJECT, make_isolated(own, other, same_bits=True), REFERENCE, ALONE)
    assert result.status == "fail" and result.first_bad["stage"] == "decode" and not result.measure["equal_bits"]


def test_blas_decode_may_differ_only_by_rounding() -> None:
    own, other = round_values(make_stream()), round_values(make_stream(), seed=2)
    assert check_isolation(SUBJECT, make_isolated(own, other, same_bits=False), REFERENCE, ALONE).status == "pass"
    other["l_out-1"][PROMPT + 1] *= np.float32(1 + 3e-5)
    result = check_isolation(SUBJECT, make_isolated(own, other, same_bits=False), REFERENCE, ALONE)
    assert result.status == "fail" and (result.first_bad["node"], result.first_bad["stage"]) == (
        "l_out-1",
        "decode",
    )


def test_nan_is_not_treated_as_rounding() -> None:
    own = round_values(make_stream())
    own["l_out-0"][2, 2] = np.nan
    assert check_isolation(SUBJECT, make_isolated(own, own, same_bits=True), REFERENCE, ALONE).status == "fail"


def test_limits_are_small_justified_multiples_of_healthy_values() -> None:
    for limit in (ALONE, *ALONE_OF.values()):
        assert limit.why
        for name, healthy in limit.healthy.items():
            assert 2 <= getattr(limit, name) / healthy <= 3, (name, limit)
    assert choose_solo_limit("llama") is ALONE and choose_solo_limit("mamba") is not ALONE


# --- all together -------------------------------------------------------------------------------------------


def make_drift(rel_rms: float, name: str = "logits") -> CheckResult:
    measure = ValueMeasure(Measure(1.0, rel_rms, 1, equal_bits=False, nonfinite=0, within=False))
    return CheckResult(f"m/t1/{name}", name, "fail", measure=measure)


@pytest.mark.parametrize(("times", "status"), [(0.9, "pass"), (1.1, "fail")])
@pytest.mark.parametrize("name", ["logits", "decode"])
def test_drift_is_bounded_by_rounding_of_the_model(name: str, times: float, status: str) -> None:
    run = CapturedRun(np.ones((PROMPT + STEPS, 8), np.float32), {"l_out-0": np.ones((PROMPT, WIDTH), np.float32)})
    other = replace(run, logits=run.logits * np.float32(1 + 1e-4))
    result = make_drift(1e-4 * DRIFT_GROWTH * times, name)
    assert could_be_drift([result])
    (judged,) = ignore_drift([result], run, other, PROMPT)
    assert judged.status == status
    assert ("drift" in judged.reason) == (status == "pass")
    assert ("rel_rms" in judged.limit.as_dict()) == (status == "pass")
