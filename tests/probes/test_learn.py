"""Facts: learned from a device, written, read back, and the simulated device behaving by them."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.cli import options, sim
from zinc_rt.cli.report import Report
from zinc_rt.engine.devices import Choice
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.probes import command
from zinc_rt.probes.device import parse_device
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit.context import ProbeOptions
from zinc_rt.probes.learning import facts_file
from zinc_rt.probes.learning.learn import PROBES, SGPR_READ_FORMS, WMMA_PLACES, measure_distances, sample
from zinc_rt.probes.outcome import T1, T2
from zinc_rt.probes.runner import ProbeRunner, RunPlan
from zinc_rt.sim import facts
from zinc_rt.sim.facts import Behaviour, FactsFile, FactValue

SIM = DeviceSpec(simulated=True, time_scale=0.1)
BY_FACT = {probe.title: probe for probe in PROBES}
BACKWARDS = [list(wmma_place) for wmma_place in reversed(WMMA_PLACES)]
OTHERWISE = {
    "ids_without_enables": "zero",
    "protected_fence": "at once",
    "dims_with_start": "end",
    "code_without_invalidate": "fresh",
    "bar_without_flush": "fresh",
    "buffer_offset": "wraps",
    "wmma_f16_order": BACKWARDS,
}


def learn_value(name: str, spec: DeviceSpec = SIM) -> Any:
    """The value that the fact's probe finds."""
    probe = BY_FACT[name]
    plan = RunPlan(spec, (T1, T2), 1, ProbeOptions((T1, T2), poll_seconds=10.0), None)
    [result] = list(ProbeRunner(plan, (probe,), Journal(None, "sim")).run())
    assert result.status == "pass", (result.reason, result.first_bad.get("report", ""))
    assert result.measure["how"] and result.measure["simulated"]
    return result.measure["value"]


def learn_from_card(**values: Any) -> FactsFile:
    """As if learned from a card."""
    return FactsFile(
        "gfx1201", "7.0.4", False, {}, {name: FactValue(value, "a test", "L00") for name, value in values.items()}
    )


def test_every_switch_has_a_probe_and_an_alternative_value() -> None:
    assert set(facts.SWITCHES) == set(OTHERWISE) <= set(BY_FACT)
    assert len(BY_FACT) == len(PROBES) == len({probe.id for probe in PROBES})


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name", OTHERWISE)
def test_facts_set_on_simulated_device_can_be_learned_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(learn_from_card(**{name: OTHERWISE[name]}).to_json())
    assert learn_value(name, replace(SIM, facts=str(path))) == OTHERWISE[name]


@pytest.mark.rest
@pytest.mark.parametrize("name", OTHERWISE)
def test_simulated_device_without_facts_file_uses_defaults(name: str) -> None:
    if name == "wmma_f16_order":
        want: Any = "four a step"
    else:
        want = getattr(Behaviour(), name)
        assert want != OTHERWISE[name]
    assert learn_value(name) == want


@pytest.mark.parametrize("name", sorted(set(BY_FACT) - set(OTHERWISE) - {"hardware_registers"}))
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=3)
def test_remaining_facts_are_learned_too(name: str) -> None:
    value = learn_value(name)
    json.dumps(value)
    if name == "function_bits":
        assert {item: set(value[item]["ulps"]) for item in value} == {item: {"0"} for item in value}, (
            "correctly rounded"
        )
    elif name == "lds_beyond":
        assert set(value.values()) == {"0x0"}
    elif name == "denormals":
        assert value == {
            "0xf0": {"f32": "kept", "f16": "kept"},
            "0xc0": {"f32": "flushed", "f16": "kept"},
            "0x00": {"f32": "flushed", "f16": "flushed"},
        }
    elif name == "sgpr_read":
        assert value == dict.fromkeys(SGPR_READ_FORMS, "new")


def test_perturbed_result_is_measured_in_ulps() -> None:
    inputs = sample()
    with np.errstate(all="ignore"):
        exact = (1 / inputs.astype(np.longdouble)).astype(np.float32).view(np.uint32)
    assert set(measure_distances("rcp", inputs, exact)["ulps"]) == {"0"}
    other = exact.copy()
    other[::2] += 1
    assert set(measure_distances("rcp", inputs, other)["ulps"]) == {"-1", "0", "1"}


# --- the file ---


def test_facts_file_round_trips() -> None:
    written = learn_from_card(**OTHERWISE, counter={"hz": 1})
    assert facts.parse(written.to_json(), "f") == written
    assert written.behaviour().wmma_f16_order[0] == tuple(BACKWARDS[0])


def test_undetermined_order_leaves_the_default() -> None:
    assert learn_from_card(wmma_f16_order="neither").behaviour() == Behaviour()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object, got list"),
        ({"version": 2}, "version is 2, expected 1"),
        ({"chip": 1}, "chip is 1, expected str"),
        ({"facts": {"a": 1}}, "fact a must have exactly value, how and probe"),
        ({"facts": {"a": {"value": 1, "how": 2, "probe": ""}}}, "how and probe of fact a must be strings"),
        ({"protected_fence": "later"}, "protected_fence is 'later', expected waits or at once"),
        ({"wmma_f16_order": BACKWARDS[1:]}, "16 distinct positions"),
        ({"wmma_f16_order": [BACKWARDS[0]] * 16}, "16 distinct positions"),
    ],
)
def test_invalid_file_is_rejected_with_the_error(change: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    if isinstance(change, dict):
        raw = json.loads(learn_from_card(protected_fence="waits").to_json())
        switch = {name: change.pop(name) for name in list(change) if name in facts.SWITCHES}
        raw |= change
        raw["facts"] |= {name: {"value": value, "how": "", "probe": ""} for name, value in switch.items()}
        change = json.dumps(raw)
    path.write_text(change)
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        parse_device("sim", [], facts=str(path))


def test_missing_foreign_chip_and_simulated_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    with pytest.raises(InputError, match="no such file"):
        parse_device("sim", [], facts=str(path))
    path.write_text(replace(learn_from_card(), chip="gfx1200").to_json())
    with pytest.raises(UsageError, match="facts for gfx1200, but this device is gfx1201"):
        parse_device("sim", [], facts=str(path))
    path.write_text(replace(learn_from_card(), simulated=True).to_json())
    with pytest.raises(UsageError, match="cannot calibrate"):
        parse_device("sim", [], facts=str(path))
    assert parse_device("sim", [], facts=str(path), force_facts=True).force_facts
    with pytest.raises(UsageError, match="supported only by a simulated device"):
        parse_device("auto", [], facts=str(path))


@pytest.mark.rest
def test_command_writes_learned_facts_and_marks_them_simulated(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "facts.json"
    words = ["--device", "sim", "-k", "L02,L12"]
    assert command.main([*words, "--learn", str(path)]) == 0
    assert "not a calibration" in capsys.readouterr().out
    result = facts.parse(path.read_text(), "f")
    assert (
        result.simulated
        and result.chip == "gfx1201"
        and set(result.facts) == {"ids_without_enables", "dims_with_start"}
    )
    assert result.facts["dims_with_start"].probe == "L12" and result.firmware["MES"]
    assert command.main([*words, "--facts", str(path), "--learn", str(tmp_path / "again.json")]) == 2
    assert "--force-facts" in capsys.readouterr().err
    second = [*words, "--facts", str(path), "--force-facts", "--learn", str(tmp_path / "again.json")]
    assert command.main(second) == 0


def test_empty_result_writes_no_file(tmp_path: Path) -> None:
    output = facts_file.write_facts(tmp_path / "f", Report("pm4-test"), firmware={})
    assert "none learned" in output and not (tmp_path / "f").exists()


def test_served_device_rejects_invalid_file(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "facts.json"
    path.write_text("{}")
    assert sim.main(["--socket", str(tmp_path / "gpu.sock"), "--facts", str(path)]) == 2
    assert "version is None, expected 1" in capsys.readouterr().err


def test_models_on_simulated_device_accept_facts_too(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(learn_from_card(protected_fence="at once").to_json())
    namespace = argparse.Namespace(sanitizer="off", facts=str(path), threads=None)
    assert options.simulation_options(namespace) == {"sanitizer": "off", "facts": str(path)}
    options.check_options_used([Choice(registry.spec("t1"), "", True)], namespace)
    real = Choice(registry.spec("t1"), "", gpu=object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--sanitizer needs a simulated device, which t1 does not use"):
        options.check_options_used([real], namespace)
    path.write_text(replace(learn_from_card(), simulated=True).to_json())
    with pytest.raises(UsageError, match="cannot calibrate"):
        options.simulation_options(namespace)
