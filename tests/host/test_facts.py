"""zinc_rt/host/facts.yaml holds a row for all the simulated device keeps, and none for anything else."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from fnmatch import filter as filter_names
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.facts import (
    FILE,
    Fact,
    find_assumed_facts,
    find_fact,
    format_dependency_suffix,
    load_table,
    read_table,
)
from zinc_rt.isa.lint import RULES as LINT
from zinc_rt.isa.rows import SEGMENTS, make_rows
from zinc_rt.isa.target import make_default_target
from zinc_rt.perf.predict.devices import load_table as devices
from zinc_rt.probes.learning.learn import PROBES as LEARN
from zinc_rt.probes.registry import PROBES
from zinc_rt.sim import flip
from zinc_rt.sim.chips import CHIPS, Chip
from zinc_rt.sim.consulted import Coverage
from zinc_rt.sim.cp.execute import EXECUTE
from zinc_rt.sim.driver import drm_ioctls, kfd_ioctls
from zinc_rt.sim.facts import DEFAULT, SWITCHES
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.profiles import LINUX_VERSIONS, PROPOSALS, VERSIONS, LinuxProfile, find_profile
from zinc_rt.sim.tables import sdma_packets
from zinc_rt.sim.tables.aql import AqlType
from zinc_rt.sim.tables.packets import ROWS

SIM = Path(FILE).parents[1] / "sim"
CALLS = {
    "finding",
    "report_unverified",
    "report",
    "report_if",
    "_report_once",
    "_report_unfinished",
    "stop",
    "Refused",
    "Site",
}
CHOSEN = {
    "predicate",
    "value",
    "value-unverified",
    "reserved-bits",
    "out-of-fuel",
    "unwritten-output",  # found by zinc_rt/launching
}  # by an expression, not in a call
LISTS = {
    "sim.shader.memory.scratch_access",
    "sim.shader.memory.lds_access",
    "sim.shader.memory.lane_checks",
}
NOT_RULES = {"shared", "sdma"}
HANDLERS = (*kfd_ioctls.HANDLERS.values(), *drm_ioctls.HANDLERS.values())
# Files that refuse with an errno and are no ioctl's: the row that speaks for each.
REFUSE = {
    "driver/ioctl_call": "file/user-memory",
    "chips": "file/open",
    "driver/event_table": "ioctl/AMDKFD_IOC_WAIT_EVENTS",
    "driver/files": "ioctl/DRM_IOCTL_GEM_CLOSE",
    "gpu": "file/open",
    "driver/process": "file/open",
    "driver/kfd_state": "ioctl/AMDKFD_IOC_ACQUIRE_VM",
    "machine": "file/open",
    "driver/host_mappings": "file/mmap",
    "memory/buffers": "ioctl/DRM_IOCTL_AMDGPU_GEM_CREATE",
    "driver/sysfs": "file/sysfs",
    "driver/client_memory": "file/user-memory",
    "driver/fences": "ioctl/DRM_IOCTL_SYNCOBJ_WAIT",
    "driver/kernel_rings": "ioctl/DRM_IOCTL_AMDGPU_CS",
    "driver/userq_state": "ioctl/DRM_IOCTL_AMDGPU_USERQ",
    "memory/vm": "ioctl/DRM_IOCTL_AMDGPU_GEM_VA",
}
TRANSPORT = {  # no rule of any kernel
    "file_layer",
    *(f"serve/{name}" for name in ("client", "operations", "remote_memory", "shared_pages")),
}


@cache
def simulator_calls() -> tuple[tuple[str, ast.Call], ...]:
    """Yield every call in the simulated device's code, with its file."""
    return tuple(
        (path.relative_to(SIM).with_suffix("").as_posix(), node)
        for path in sorted(SIM.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )


@cache
def finding_rules() -> set[str]:
    """Return every rule that a finding of the simulated device can have."""
    result = set(CHOSEN) | set(LINT)
    for _, node in simulator_calls():
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in CALLS or name.endswith("Finding"):
            words = [word.value for word in node.args[:3] if isinstance(word, ast.Constant)]
            result |= {str(word) for word in words if re.fullmatch(r"[a-z]+(-[a-z]+)*", str(word))}
    for name in LISTS:
        result |= set(import_module(f"zinc_rt.{name}").RULES)
    return result - NOT_RULES


@cache
def noted_marks() -> set[str]:
    """Return the marks that are literals in the code, not derived from a name."""
    return {
        node.args[0].value
        for _, node in simulator_calls()
        if getattr(node.func, "attr", "") == "add_mark"
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }


def table_mnemonics() -> set[str]:
    result = set()
    for path in (Path(FILE).parents[1] / "isa" / "tables").glob("*.py"):
        for encoding in getattr(import_module(f"zinc_rt.isa.tables.{path.stem}"), "ROWS", {}):
            for generation in (11, 12):
                segments = SEGMENTS if encoding == "VMEM" else (encoding,)
                result |= {row.mnemonic for s in segments for row in make_rows(path.stem, s, generation).values()}
    return result


def row_ids(kind: str) -> set[str]:
    return {row.id.partition("/")[2] for row in load_table().values() if row.kind == kind}


@pytest.mark.rest
def test_every_finding_has_a_row_and_every_row_a_finding() -> None:
    asked = {probe.title for probe in LEARN} | set(devices().assumptions)
    assert row_ids("rule") == {""}
    assert {row.id for row in load_table().values() if row.kind == "rule"} - asked == finding_rules()


def test_every_learnable_fact_has_a_row() -> None:
    assert {probe.title for probe in LEARN} <= set(load_table())


def test_every_ioctl_has_a_row_and_every_row_an_ioctl() -> None:
    assert row_ids("ioctl") == {handler.ioctl.name for handler in HANDLERS}


def test_every_packet_has_a_row_and_every_row_a_packet() -> None:
    assert row_ids("packet") == {row.name for row in ROWS if row.opcode in EXECUTE}
    assert row_ids("sdma") == {row.name for row in sdma_packets.PACKETS.values()}


@pytest.mark.rest
def test_every_errno_comes_from_an_ioctl_or_has_a_row() -> None:
    refusing = {
        name
        for name, node in simulator_calls()
        if getattr(node.func, "id", "") == "OSError" and len(node.args) > 1
    }
    of_ioctls = {handler.run.__module__.partition("zinc_rt.sim.")[2].replace(".", "/") for handler in HANDLERS}
    assert refusing - of_ioctls - TRANSPORT <= set(REFUSE)
    assert set(REFUSE.values()) <= set(load_table())


def test_every_chip_constant_has_a_row_and_every_row_a_constant() -> None:
    names = {field.name for field in fields(Chip)}
    assert not [
        f"chip/{key}/{name}"
        for key in CHIPS
        for name in names
        if f"chip/{key}/{name}" not in load_table() and f"chip/*/{name}" not in load_table()
    ]
    for row in row_ids("chip"):
        chip, name = row.split("/")
        assert chip in (*CHIPS, "*") and name in names, row


def test_every_kernel_version_difference_has_a_row() -> None:
    names = {field.name for field in fields(LinuxProfile)}
    rows = [row.split("/") for row in row_ids("kernel")]
    assert names <= {row[0] for row in rows if len(row) == 1}
    for row in rows:
        assert row[0] in names or (row[0] in LINUX_VERSIONS and (len(row) == 1 or row[1] in names)), row
    for name in names - {"version"}:
        values = find_fact(f"kernel/{name}").versions
        assert next(iter(values)) == VERSIONS[0] and set(values) <= set(VERSIONS), name


@pytest.mark.parametrize("proposal", PROPOSALS)
def test_proposed_changes_are_options_of_a_version(proposal: str) -> None:
    usual, proposed = find_profile("7.0"), find_profile(f"7.0+{proposal}")
    assert usual != proposed and proposed.version == f"7.0+{proposal}"
    with pytest.raises(ValueError, match="unknown proposed change 'nothing'; available: userq-cwsr"):
        find_profile("7.0+nothing")


@pytest.mark.parametrize("row", [row for row in load_table().values() if row.code], ids=lambda row: row.id)
def test_constants_named_by_rows_exist(row: Fact) -> None:
    module, _, name = row.code.partition(":")
    assert isinstance(getattr(import_module(module), name), int | float)


@pytest.mark.parametrize("row", [row for row in load_table().values() if row.settled_by], ids=lambda row: row.id)
def test_probes_named_by_a_row_exist(row: Fact) -> None:
    probes, asked = {probe.id for probe in PROBES}, {probe.title for probe in LEARN}
    for item in row.settled_by:
        assert " " in item or item in probes or item in asked, item
        assert not set(re.findall(r"\bP\d\d\b", item)) - probes


def test_device_records_every_mark_named_by_a_row() -> None:
    known = {
        *(f"finding {rule}" for rule in finding_rules()),
        *(f"ioctl {handler.ioctl.name}" for handler in HANDLERS),
        *(f"packet {row.name}" for row in ROWS if row.opcode in EXECUTE),
        *(f"sdma {row.name}" for row in sdma_packets.PACKETS.values()),
        *(f"aql {item.name}" for item in AqlType),
        *(f"chip {key}" for key in CHIPS),
        *(f"kernel {key}" for key in LINUX_VERSIONS),
        *(f"proposed {key}" for key in PROPOSALS),
        *(f"op {name}{form}" for name in table_mnemonics() for form in ("", "_dpp", "_e64")),
        *noted_marks(),
        "nothing",
        "prediction",
    }
    titles = {probe.title for probe in LEARN}
    for row in load_table().values():
        for pattern in row.marks:
            for part in pattern.split(" + "):
                assert part in known or filter_names(known, part) or row.id in titles, row.id
    used = {part for row in load_table().values() for pattern in row.marks for part in pattern.split(" + ")}
    assert noted_marks() <= used, "a mark that no row has"


def test_every_row_has_a_statement_and_a_source() -> None:
    for row in load_table().values():
        assert row.says and row.where, row.id
        assert bool(row.settled_by) or not row.assumed, row.id


def test_device_defaults_match_the_table() -> None:
    for name in SWITCHES:
        row = find_fact(name)
        assert row.assumed and (name == "wmma_f16_order" or getattr(DEFAULT, name) == row.value)


# --- what a session leaned on ---


def test_idle_device_depends_on_no_assumption() -> None:
    device = SimDriver()
    marks = device.consulted()[1]
    device.close_all()
    assert marks == ["chip r9700", "kernel 7.0"] and find_assumed_facts(marks) == ()


def test_coverage_period_ends_when_queried() -> None:
    noted = Coverage("chip r9700")
    noted.add_mark("packet NOP")
    period, marks = noted.take_since()
    assert marks == ["chip r9700", "packet NOP"]
    assert noted.take_since(period)[1] == ["chip r9700"]
    noted.add_mark("packet WRITE_DATA")
    assert noted.take_since(period)[1] == ["chip r9700", "packet WRITE_DATA"]


def test_kernel_instructions_are_recorded_as_coverage() -> None:
    noted = Coverage()
    noted.ran(bytes.fromhex("0000b0bf"), make_default_target())
    assert "op s_endpgm" in noted.take_since()[1]


def test_row_can_require_two_marks() -> None:
    both = ["kernel 7.0", "ioctl DRM_IOCTL_AMDGPU_USERQ"]
    wanted = find_fact("kernel/7.0/userq_hardened")
    assert wanted in find_assumed_facts(both) and wanted not in find_assumed_facts(both[:1])


def test_only_assumed_rows_are_dependencies() -> None:
    assert all(row.assumed for row in find_assumed_facts(f"{row.marks[0]}" for row in load_table().values()))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], ", depends on 1 unverified assumption: a"),
        (list("abcde"), ", depends on 5 unverified assumptions: a, b, c, d and 1 more"),
    ],
)
def test_verdict_lists_its_dependencies(names: list[str], text: str) -> None:
    assert format_dependency_suffix(names) == text


# --- rows at their other value ---


@pytest.mark.parametrize("row", flip.list_negatable(), ids=lambda row: row.id)
def test_negated_row_changes_the_device(row: Fact) -> None:
    kernel = "7.0" if not row.id.startswith("kernel/") else row.id.split("/")[1]
    usual, other = SimDriver(linux=kernel), SimDriver(linux=kernel, flip=[row.id])
    try:
        assert other.machine.model.describe_options()["flip"] == [row.id]
        assert simulated_settings(usual) != simulated_settings(other)
    finally:
        usual.close_all()
        other.close_all()


def simulated_settings(device: SimDriver) -> tuple[Any, ...]:
    gpu, machine = device.machine.gpus[0], device.machine
    return gpu.chip, machine.linux, gpu.cp.device.behaviour, gpu.cp.engine.checks.perturb  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("id", "message"), [("nothing", "no fact 'nothing'"), ("counter", "has no alternative value")]
)
def test_row_that_cannot_be_negated_is_reported(id: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SimDriver(flip=[id])


# --- the file ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: other", "expected schema"),
        ("{", "not YAML"),
        ("schema: zinc-rt-facts/1\nfacts: [{rows: {a: {says: b}}}]", "expected says, from and where"),
        ("schema: zinc-rt-facts/1\nfacts: [{rows: {a: {says: b, from: c, where: d}}}]", "from 'c'"),
        (
            "schema: zinc-rt-facts/1\nfacts: [{rows: {a: {says: b, from: assumed, where: d}}}]",
            "an assumed row must have the key `settled`",
        ),
        ("schema: zinc-rt-facts/1\nfacts: [{rows: {a: {says: b, from: source, where: d, on: e}}}]", "unknown"),
        (
            "schema: zinc-rt-facts/1\nfacts: [{from: source, where: d, rows: {a: {says: b}}}, "
            "{from: source, where: d, rows: {a: {says: b}}}]",
            "row a appears twice",
        ),
    ],
)
def test_invalid_row_is_reported(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_table(tmp_path / "f.yaml")
