"""The bundle store: values that separate passing from failing machines, regressions, the page, KCIDB's format."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest

from zinc_rt.cli.report import Report, Result
from zinc_rt.doctor.bundle.combination import MachineCombination, find_combination
from zinc_rt.doctor.bundle.compare import diff_machines, find_regressions, find_suspicions, natural_sort_key
from zinc_rt.doctor.bundle.format import Bundle
from zinc_rt.doctor.bundle.kcidb import export_machines
from zinc_rt.doctor.bundle.kcidb_fields import find_problems
from zinc_rt.doctor.bundle.make import BundleMaker
from zinc_rt.doctor.bundle.page import build_matrix, render_page
from zinc_rt.doctor.bundle.store import BundleStore, StoredMachine
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.finding import DoctorFinding
from zinc_rt.host.errors import InputError, UnsupportedError

DEVICE = "sys/class/drm/card0/device"


def make_bundle(
    kernel: str = "6.14.0",
    mes: int = 0x84,
    *,
    failed: tuple[str, ...] = (),
    simulated: bool = False,
    card: str = "1",
    mesa: str = "25.0.7",
    parameter: str = "1",
    **files: bytes,
) -> Bundle:
    message = {
        "proc/version": f"Linux version {kernel} (x@y)".encode(),
        f"{DEVICE}/vendor": b"0x1002\n",
        f"{DEVICE}/device": b"0x7551\n",
        f"{DEVICE}/unique_id": f"a1b2c3d4e5f6{card:>04}".encode(),
        f"{DEVICE}/current_link_width": b"16\n",
        "sys/module/amdgpu/parameters/user_queue": parameter.encode(),
        "sys/class/kfd/kfd/topology/nodes/1/properties": b"simd_count 128\ngfx_target_version 120001\n",
        "firmware.txt": f"MES feature version: 1, firmware version: {mes:#010x}\n".encode(),
        "packages.txt": f"mesa-vulkan-drivers {mesa}\nvim 9.1\n".encode(),
    }
    maker = BundleMaker(simulated=simulated)
    findings = [DoctorFinding("old-mes", "warning", "MES is old", "", "")] if mes < 0x80 else []
    maker.add_machine(MachineCapture({**message, **files}), findings)
    rows = [
        Result(
            name,
            "probe",
            "fail" if name in failed else "pass",
            tier=name[-2:],
            reason="no fence" if name in failed else "",
            measure={"title": "alive", "seconds": 0.5},
        )
        for name in ("P20/t1", "P33/t1", "P9/t1")
    ]
    maker.add("reports/pm4-test.json", Report("pm4-test", results=rows).to_json(), "report")
    return maker.make_bundle()


@pytest.fixture
def store(tmp_path: Path) -> BundleStore:
    return BundleStore(tmp_path / "deep" / "store.sqlite")


def import_machines(*bundles: Bundle) -> list[StoredMachine]:
    with BundleStore(Path(":memory:")) as memory:
        for bundle in bundles:
            assert memory.add(bundle)
        return memory.machines()


def test_combination_is_read_from_machine_files() -> None:
    result = make_bundle().combination
    assert (result.chip, result.kernel, result.pci_id) == ("gfx1201", "6.14.0", "1002:7551")
    assert result.firmware == {"mes": "0x84"} and result.packages == {"mesa-vulkan-drivers": "25.0.7"}
    assert result.parameters == {"user_queue": "1"} and len(result.card) == 16
    assert make_bundle(card="2").combination.card != result.card == make_bundle(kernel="6.15").combination.card
    assert find_combination({}) == MachineCombination(), "what is absent is unknown"


def test_import_is_idempotent_and_lossless(store: BundleStore) -> None:
    one = make_bundle(failed=("P20/t1",), mes=0x70)
    assert store.add(one) and not store.add(one)
    [machine] = store.machines()
    assert machine.combination == one.combination and machine.findings == (("old-mes", "warning", "MES is old"),)
    assert machine.probes()["P20/t1"].status == "fail" and machine.probes()["P20/t1"].seconds == 0.5
    store.close()
    with BundleStore(store.path, must_exist=True) as second:
        assert second.machines() == [machine]


@pytest.mark.parametrize(
    "content", [b"hello, this is no database at all, and long enough", b"SQLite format 3\0" + b"x" * 100]
)
def test_non_store_file_is_rejected(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a store of bundles"):
        BundleStore(path)
    assert path.read_bytes() == content


def test_store_of_another_version_and_foreign_database_are_rejected(store: BundleStore, tmp_path: Path) -> None:
    store.close()
    for path, statement, message in (
        (store.path, "PRAGMA user_version = 2", "version 2, this build reads 1"),
        (tmp_path / "other.sqlite", "CREATE TABLE t (x)", "another database"),
    ):
        with sqlite3.connect(path) as database:
            database.execute(statement)
        with pytest.raises(InputError, match=message):
            BundleStore(path)
    with pytest.raises(InputError, match="the store does not exist"):
        BundleStore(tmp_path / "none.sqlite", must_exist=True)


def test_machines_are_compared_by_configuration_then_by_behaviour() -> None:
    good = make_bundle(**{f"{DEVICE}/power_state": b"D0\n"})
    bad = make_bundle("6.15.0", 0x70, failed=("P20/t1",), mesa="24.1", parameter="-1", card="7",
                 **{f"{DEVICE}/power_state": b"D3hot\n", f"{DEVICE}/current_link_width": b"4\n"})  # fmt: skip
    rows = {(item.kind, item.name): (item.a, item.b) for item in diff_machines(good, bad)}
    assert list(rows) == [
        ("card", "kernel"),
        ("firmware", "mes"),
        ("parameter", "user_queue"),
        ("package", "mesa-vulkan-drivers"),
        ("file", f"{DEVICE}/current_link_width"),
        ("file", f"{DEVICE}/power_state"),
        ("finding", "old-mes"),
        ("result", "P20/t1"),
    ]
    assert rows["card", "kernel"] == ("6.14.0", "6.15.0") and rows["firmware", "mes"] == ("0x84", "0x70")
    assert rows["result", "P20/t1"] == ("pass", "fail: no fence") and rows["finding", "old-mes"] == (
        "",
        "MES is old",
    )
    assert diff_machines(good, make_bundle(card="9", **{f"{DEVICE}/power_state": b"D0\n"})) == [], (
        "another card of the same kind"
    )


def test_regression_names_adjacent_versions_and_whether_all_else_is_equal() -> None:
    result = find_regressions(
        import_machines(
            make_bundle("6.9.0", card="1"),
            make_bundle("6.14.0", card="2"),
            make_bundle("6.15.0", failed=("P20/t1",), card="3"),
            make_bundle("6.16.0", 0x90, failed=("P20/t1",), card="4"),
        )
    )
    [kernel, *others] = result
    assert (kernel.probe, kernel.variable, kernel.good, kernel.bad) == ("P20/t1", "kernel", "6.14.0", "6.15.0")
    assert kernel.alone and (kernel.passes, kernel.fails) == (1, 1) and kernel.chip == "gfx1201"
    assert not others, "MES 0x84 both passes and fails: it is not to blame"


def test_firmware_is_suspected_and_so_are_two_new_components() -> None:
    one, two = make_bundle("6.14.0", 0x84), make_bundle("6.14.0", 0x110, failed=("P33/t1",))
    assert [
        (regression.variable, regression.good, regression.bad, regression.alone)
        for regression in find_regressions(import_machines(one, two))
    ] == [("mes (firmware)", "0x84", "0x110", True)]
    both = import_machines(one, make_bundle("6.15.0", 0x110, failed=("P33/t1",)))
    assert {(regression.variable, regression.alone) for regression in find_regressions(both)} == {
        ("kernel", False),
        ("mes (firmware)", False),
    }


def test_discriminating_values_occur_on_one_side_only() -> None:
    result = find_suspicions(
        import_machines(
            make_bundle(parameter="1", card="1"),
            make_bundle("6.15.0", parameter="1", card="2"),
            make_bundle(parameter="-1", failed=("P9/t1",), card="3"),
            make_bundle("6.15.0", parameter="-1", failed=("P9/t1",), card="4"),
        )
    )
    assert [(item.probe, item.variable, item.bad, item.good) for item in result] == [
        ("P9/t1", "user_queue (parameter)", ("-1",), ("1",))
    ]


def test_frame_has_a_row_per_probe_result_and_a_column_per_variable(store: BundleStore) -> None:
    assert store.add(make_bundle(failed=("P20/t1",))) and store.add(make_bundle("7.0", simulated=True))
    frame = store.to_frame()
    assert len(frame) == 6 and set(frame.chip) == {"gfx1201", "gfx1201 (simulated)"}
    [failed] = frame[frame.status == "fail"].to_dict("records")
    assert (failed["probe"], failed["reason"], failed["kernel"]) == ("P20/t1", "no fence", "6.14.0")
    assert failed["firmware.mes"] == "0x84" and failed["parameter.user_queue"] == "1"


def test_empty_store_has_no_regressions_and_missing_pandas_names_the_extra(
    store: BundleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_regressions([]) == [] and find_suspicions([]) == [] and store.to_frame().empty
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnsupportedError, match="pandas is not installed") as error:
        find_regressions(import_machines(make_bundle()))
    assert "zinc-rt[report]" in error.value.next


def test_simulated_machines_are_never_mixed_with_cards() -> None:
    mixed = import_machines(make_bundle("6.14.0"), make_bundle("6.15.0", failed=("P20/t1",), simulated=True))
    assert not find_regressions(mixed) and not find_suspicions(mixed)
    assert len(build_matrix(mixed).rows) == 2


def test_versions_are_ordered_numerically() -> None:
    assert sorted(["6.14", "6.9", "6.14-rc2", "0x110", "0x84"], key=natural_sort_key) == [
        "6.9",
        "6.14",
        "6.14-rc2",
        "0x84",
        "0x110",
    ]


def test_page_shows_combinations_probes_and_regressions_without_scripts() -> None:
    seen = import_machines(
        make_bundle("6.14.0"),
        make_bundle("6.15.0<script>alert(1)</script>", failed=("P20/t1",), mes=0x70),
        make_bundle("7.0", simulated=True),
    )
    html = render_page(seen)
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert "http" not in html.partition("<body>")[2], "nothing is fetched"
    for text in ("P20/t1", "6.14.0", "✗", "✓", "SIMULATED", "MES is old", "other variables differ too"):
        assert text in html
    assert [row.worst_status("P20/t1") for row in build_matrix(seen).rows] == ["pass", "fail", "pass"]


def test_kcidb_output_of_checkouts_builds_and_tests_matches_its_schema() -> None:
    seen = import_machines(
        make_bundle(failed=("P20/t1",)), make_bundle("6.15.0"), make_bundle("7.0", simulated=True)
    )
    report = json.loads(json.dumps(export_machines(seen)))
    assert report["version"] == {"major": 5, "minor": 3} and not list(find_problems(report))
    assert {row["git_commit_name"] for row in report["checkouts"]} == {"6.14.0", "6.15.0"}, "none simulated"
    tests = {row["id"].partition(":")[2].partition(":")[2]: row for row in report["tests"]}
    failed = next(row for row in report["tests"] if row["status"] == "FAIL")
    assert failed["path"] == "zinc_rt.pm4-test.P20.t1" and failed["log_excerpt"] == "no fence"
    assert failed["environment"]["misc"]["firmware"] == {"mes": "0x84"} and failed["duration"] == 0.5
    assert len(tests) == 3 and len(report["tests"]) == 6
    assert len(export_machines(seen, simulated=True)["tests"]) == 9


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(version={"major": 4, "minor": 0}), "version is"),
        (lambda r: r.update(revisions=[]), "not a member of a report"),
        (lambda r: r["tests"][0].update(status="GREEN"), "is not as FAIL"),
        (lambda r: r["tests"][0].update(build_id="zinc_rt:none"), "is not in builds"),
        (lambda r: r["tests"][0].update(duration=None), "duration is None"),
        (lambda r: r["tests"][0].update(path="a b"), "is not as"),
        (lambda r: r["tests"][0].update(log_excerpt="x" * 16385), "longer than 16384"),
        (lambda r: r["tests"][0].update(waived=True), "no member"),
        (lambda r: r["tests"][0].update(start_time="yesterday"), "not a time with a time zone"),
        (lambda r: r["builds"][0].pop("checkout_id"), "is missing"),
        (lambda r: r["builds"][0].update(id="other:1"), "does not begin with its origin"),
        (lambda r: r["checkouts"].append(r["checkouts"][0]), "duplicate id"),
    ],
)
def test_kcidb_schema_violations_are_detected(change: object, message: str) -> None:
    report = export_machines(import_machines(make_bundle()))
    change(report)  # type: ignore[operator]
    assert any(message in problem for problem in find_problems(report)), list(find_problems(report))
