"""The milestones file: whole, sourced, and every mistake in it refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from zinc_rt.host.errors import InputError
from zinc_rt.perf.gate.figures import FIGURES
from zinc_rt.perf.gate.milestones import FILE, load_milestones, parse_bound, read_milestones
from zinc_rt.perf.refusals.rules import RULES, list_rules


def test_nine_original_milestones_and_one_added_have_criteria_and_sources() -> None:
    assert [milestone.id for milestone in load_milestones()] == [*(f"M{number}" for number in range(9)), "cpu"]
    for milestone in load_milestones():
        assert milestone.criteria and milestone.scope
        assert all(criterion.source for criterion in milestone.criteria)


def test_every_speed_applies_all_rules_and_names_its_hardware() -> None:
    speeds = [criterion for m in load_milestones() for criterion in m.criteria if criterion.type == "measured"]
    assert len(speeds) > 20
    for speed in speeds:
        assert set(list_rules(speed)) == set(RULES), speed.name
        assert speed.hardware["arch"] and speed.hardware["device"]


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("M1/decode", ">= 140"),
        ("M2/decode", ">= 165"),
        ("M2/prefill", ">= 250"),
        ("M3/decode", ">= 195"),
        ("M3/aggregate-4", ">= 760"),
        ("M3/aggregate-64", ">= 5800"),
        ("M4/decode", ">= 220"),
        ("M5/decode", ">= 240"),
        ("M5/latency", "< 2e-05"),
        ("M7/decode", ">= 50"),
    ],
)
def test_exit_criteria_match_the_original(name: str, bound: str) -> None:
    result = {criterion.name: criterion for m in load_milestones() for criterion in m.criteria}
    assert str(result[name].bound) == bound


def test_criteria_without_recorded_bench_can_only_be_blocked() -> None:
    """A measured criterion without a row in FIGURES has no figure to pass with."""
    unrecorded = {
        criterion.measure for m in load_milestones() for criterion in m.criteria if criterion.type == "measured"
    } - set(FIGURES)
    assert unrecorded == {"kv_memory", "speculation"}, "their benches come with the features"


def test_bound_rejects_non_numbers() -> None:
    for text in ("== 1", ">= 1", "<= 1", "< 1", "> 1"):
        assert not parse_bound(text).is_satisfied(float("nan"))


SPOILT = {
    "another schema": ("zinc-rt-milestones/2", "zinc-rt-milestones/1", "schema"),
    "an unknown field": ("unit: statement", "unity: statement", "unknown keys ['unity'], missing keys ['unit']"),
    "an unknown type": ("type: manual", "type: by hand", "type 'by hand'"),
    "no number": ('compare: "== 28"', 'compare: "== many"', "many"),
    "an unknown operator": ('compare: "== 28"', 'compare: "~ 28"', "expected one of"),
    "no source": ('source: ["§9", "Appendix B"]', "source: []", "no source"),
    "an unknown model": ("model: qwen36", "model: qwen37", "qwen37"),
    "a speed without hardware": ("hardware: {arch: gfx1201, device: R9700}", "hardware: {}", "needs hardware"),
    "an id used twice": ("id: verifier", "id: opcodes", "duplicate criterion id"),
    "no YAML": ("models:", "models: [", ""),
}


@pytest.mark.parametrize("mistake", SPOILT)
def test_invalid_milestones_file_is_rejected(mistake: str, tmp_path: Path) -> None:
    right, wrong, reason = SPOILT[mistake]
    text = FILE.read_text()
    assert right in text
    spoilt = tmp_path / "milestones.yaml"
    spoilt.write_text(text.replace(right, wrong, 1))
    with pytest.raises(InputError) as raised:
        read_milestones(spoilt)
    assert reason in str(raised.value)
