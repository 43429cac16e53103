"""The matrix of combinations: every row is whole, conditions mean what they say, failing probes quote them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from zinc_rt.cli.report import Result
from zinc_rt.doctor.rules.table import RULES
from zinc_rt.host.errors import InputError
from zinc_rt.probes.combinations import (
    Combination,
    MachineFacts,
    find_matching,
    find_statements,
    load_combinations,
)
from zinc_rt.probes.output import table

ROW = """\
schema: zinc-rt-combinations/1
rows:
- {id: a, verdict: bad, chips: [gfx1201], kernel: "6.17", what: it hangs,
   source: "https://example.org/1", date: 2026-01-02}
"""


def make_row(**fields: object) -> Combination:
    kept = {
        "id": "x",
        "verdict": "bad",
        "chips": ("gfx1201",),
        "what": "w",
        "source": "https://e",
        "date": date(2026, 1, 1),
    }
    return Combination(**{**kept, **fields})  # type: ignore[arg-type]


def test_every_row_has_a_source_and_existing_symptoms() -> None:
    ids = {rule.id for rule in RULES}
    rows = load_combinations()
    assert len(rows) >= 20 and {row.verdict for row in rows} == {"bad", "good", "suspect"}
    for row in rows:
        assert row.source.startswith("https://") and row.date < date(2027, 1, 1), row.id
        assert set(row.symptoms) <= ids, row.id
        assert row.verdict == "good" or row.symptoms or row.what, row.id


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("6.17", "6.17.0-22-generic", True),
        ("6.17", "6.170.1", False),
        ("6.1", "6.17.0", False),
        (">= 6.17, < 6.18", "6.17.9-300.fc43.x86_64", True),
        (">= 6.17, < 6.18", "6.18.0", False),
        ("< 6.18", "6.18", False),
        ("<= 6.18", "6.18.0-arch1", True),
        ("< 6.13.5", "6.13.4-zen", True),
        ("6.19.0-rc", "6.19.0-rc3", True),
        (">= 6.17", None, False),
    ],
)
def test_kernel_condition_is_matched(condition: str, value: str | None, holds: bool) -> None:
    assert make_row(kernel=condition).matches_facts(MachineFacts("gfx1201", value)) is holds


@pytest.mark.parametrize(
    ("condition", "value", "holds"), [("== 0x83", 0x83, True), ("== 0x83", 0x80, False), ("< 0x82", 0x6E, True)]
)
def test_firmware_condition_is_matched(condition: str, value: int, holds: bool) -> None:
    assert (
        make_row(firmware={"MES": condition}).matches_facts(MachineFacts("gfx1201", firmware={"MES": value}))
        is holds
    )


def test_unknown_value_matches_nothing() -> None:
    assert not make_row(firmware={"MES": "< 0x82"}).matches_facts(MachineFacts("gfx1201"))
    assert not make_row(module="dkms").matches_facts(MachineFacts("gfx1201", "6.17"))
    assert not make_row(packages={"linux-firmware": "20251125"}).matches_facts(MachineFacts("gfx1201"))
    assert not make_row(kernel="6.17").matches_facts(MachineFacts("gfx1100", "6.17.0"))


def test_package_version_may_have_an_epoch() -> None:
    facts = MachineFacts("gfx1201", packages={"amdgpu-dkms": "1:6.19.4.31300000-2337710.24.04"})
    assert make_row(packages={"amdgpu-dkms": "6.19.4"}).matches_facts(facts)
    assert make_row(packages={"amdgpu-dkms": ">= 6.19"}).matches_facts(facts)


def test_bad_rows_come_first() -> None:
    rows = [
        make_row(id="g", verdict="good", kernel="6"),
        make_row(id="b", kernel="6"),
        make_row(id="s", verdict="suspect", kernel="6"),
    ]
    assert [combination.id for combination in find_matching(MachineFacts("gfx1201", "6.17"), rows)] == [
        "b",
        "s",
        "g",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("combinations/1", "combinations/2", "schema"),
        ("verdict: bad", "verdict: ugly", "verdict is 'ugly'"),
        ("what: it hangs,", "", "lacks what"),
        ('kernel: "6.17"', "colour: red", "unknown colour"),
        ('kernel: "6.17", ', "", "the chip is the only condition"),
        ("https://example.org/1", "a friend", "is not a link"),
        ("2026-01-02", "yesterday", "expected YYYY-MM-DD"),
        ("[gfx1201]", "gfx1201", "must be lists"),
        ("rows:", "rows: [", "not YAML"),
    ],
)
def test_incomplete_row_is_rejected_by_name(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    assert old in ROW
    path.write_text(ROW.replace(old, new))
    with pytest.raises(InputError, match=message):
        load_combinations(path)


def test_duplicate_row_names_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(ROW + "\n".join(ROW.splitlines()[2:]) + "\n")
    with pytest.raises(InputError, match="duplicate row ids: a"):
        load_combinations(path)


def test_probe_quotes_known_issues_of_its_device() -> None:
    device = {"arch": "gfx1151", "kernel": "6.18.1", "firmware": {"MES": 0x83}, "simulated": False, "module": ""}
    (output,) = find_statements(device)
    assert output.startswith("bad (gfx1151-mes-83): ") and "issues/5724" in output
    assert find_statements({**device, "simulated": True}) == () == find_statements({**device, "arch": ""})
    story = table.format_evidence(
        Result("P20/t1", "probe", "fail", reason="r", first_bad={"known": [output]}, cause="c")
    )
    assert f"  known     {output}" in story


@pytest.mark.parametrize("package", ["mesa-vulkan-drivers 25.0.1-2", "vulkan-radeon 1:25.0.1-2", "mesa 25.0.1"])
def test_mesa_is_recognised_by_every_distribution_name(package: str) -> None:
    from zinc_rt.doctor.capture import MachineCapture
    from zinc_rt.doctor.diagnose import diagnose

    lspci = b"03:00.0 VGA compatible controller [0300]: Advanced Micro Devices [1002:7550]\n"
    diagnosis = diagnose(MachineCapture({"lspci.txt": lspci, "packages.txt": package.encode()}))
    assert "gfx1201-mesa-25.0.0" in [row for finding in diagnosis.findings for row in finding.rows]
