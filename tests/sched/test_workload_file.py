"""Workloads as files: what is read is what was written, and what is wrong is named with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zinc_rt.host.errors import InputError
from zinc_rt.sched.simulation.arrival import Arrival
from zinc_rt.sched.simulation.workload_file import list_tenants, read_workload, write_workload
from zinc_rt.sched.simulation.workloads import WORKLOADS
from zinc_rt.sched.tenant import Priority

GOOD = '{"arrival": 0.5, "tenant": "desk", "class": "interactive", "prompt": 100, "output": 20, "prefix": "c7"}'


def read_text(tmp_path: Path, text: str) -> list[Arrival]:
    path = tmp_path / "w.jsonl"
    path.write_text(text)
    return read_workload(path)


def test_line_is_parsed(tmp_path: Path) -> None:
    assert read_text(tmp_path, GOOD) == [Arrival(0.5, "desk", 100, 20, Priority.INTERACTIVE, "c7", 1)]


@pytest.mark.parametrize(
    "line",
    [
        '{"arrival_s": 1, "tenant_id": 3, "prompt_tokens": 10, "output_tokens": 5}',
        '{"at": 1.0, "tenant": "3", "input_tokens": 10.0, "max_tokens": 5, "priority": null, "prefix_id": null}',
        '[1, "3", null, 10, 5]',
        '[1, 3, null, 10, 5, null]',
    ],
)  # fmt: skip
def test_alternative_spellings_are_accepted(tmp_path: Path, line: str) -> None:
    assert read_text(tmp_path, f"\n{line}\n\n") == [Arrival(1.0, "3", 10, 5, line=2)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ('"x"', "line 2: expected an object, got str"),
        ("[1, 2]", "line 2: wrong number of values: 2"),
        ("{}", "line 2: missing arrival and tenant and prompt and output"),
        (GOOD.replace("prompt", "promt"), "unknown field 'promt'\n  next: did you mean prompt?"),
        (GOOD.replace("}", ', "prompt_tokens": 3}'), "prompt is given twice, once as 'prompt_tokens'"),
        (GOOD.replace("100", "0"), "invalid prompt: 0\n  next: expected a whole number of tokens, 1 to"),
        (GOOD.replace("100", "1.5"), "invalid prompt: 1.5"),
        (GOOD.replace("100", "1e400"), "invalid prompt: Infinity"),
        (GOOD.replace("100", "true"), "invalid prompt: true"),
        (GOOD.replace("0.5", "-1"), "invalid arrival: -1\n  next: expected seconds, 0 or more"),
        (GOOD.replace("0.5", "NaN"), "invalid arrival: NaN"),
        (
            GOOD.replace("interactive", "urgent"),
            'invalid class: "urgent"\n  next: expected one of interactive, standard, batch',
        ),
        (GOOD.replace('"desk"', '""'), 'invalid tenant: ""'),
    ],
)
def test_invalid_field_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_text(tmp_path, f"{GOOD}\n{line}\n")
    assert message in str(error.value) and "w.jsonl: line 2" in str(error.value)


def test_invalid_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains no requests"):
        read_text(tmp_path, "\n\n")
    with pytest.raises(InputError, match="no such file"):
        read_workload(tmp_path / "missing.jsonl")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8 at byte 0"):
        read_workload(tmp_path / "bytes")


@pytest.mark.parametrize("name", WORKLOADS)
def test_built_in_workload_round_trips_through_a_file(tmp_path: Path, name: str) -> None:
    workload = WORKLOADS[name]
    arrivals = sorted(workload.arrivals(np.random.default_rng(3)), key=lambda arrival: arrival.at)
    result = read_text(tmp_path, write_workload(arrivals, workload.tenants))
    assert [(a.tenant, a.prompt, a.output, a.prefix) for a in result] == [
        (a.tenant, a.prompt, a.output, a.prefix) for a in arrivals
    ]
    classes = {tenant.name: tenant.priority for tenant in workload.tenants}
    assert all(tenant.priority == classes[tenant.name] for tenant in list_tenants(result))


def test_tenant_gets_the_highest_class_it_requests() -> None:
    arrivals = [
        Arrival(1, "a", 1, 1, Priority.BATCH),
        Arrival(2, "a", 1, 1, Priority.INTERACTIVE),
        Arrival(0, "b", 1, 1),
    ]
    result = {tenant.name: tenant.priority for tenant in list_tenants(arrivals)}
    assert result == {"b": Priority.STANDARD, "a": Priority.INTERACTIVE}
