"""How many threads t_cpu_native takes, where they may run, and what is refused."""

from __future__ import annotations

import os

import pytest

from zinc_rt.backends.cpu import threads
from zinc_rt.backends.cpu.threads import check_affinity, choose_default_threads
from zinc_rt.host.errors import UsageError


@pytest.fixture
def system_files(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The contents of the system's files; other files do not exist. Eight CPUs, two to a core."""
    result = {threads.SIBLINGS.format(cpu): f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)}
    monkeypatch.setattr(threads, "_read_file", lambda path: result.get(path, ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    return result


def test_one_thread_is_used_per_core(system_files: dict[str, str]) -> None:
    assert choose_default_threads() == 4


def test_only_cores_allowed_for_this_process_are_used(
    system_files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 5})
    assert choose_default_threads() == 2


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ({"/sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
        ({"/sys/fs/cgroup/cpu.max": "max 100000"}, 4),
        ({"/sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        ({"/sys/fs/cgroup/cpu.max": "nonsense"}, 4),
        ({threads.CGROUP_1.format("quota"): "300000", threads.CGROUP_1.format("period"): "100000"}, 3),
        ({threads.CGROUP_1.format("quota"): "-1", threads.CGROUP_1.format("period"): "100000"}, 4),
    ],
)
def test_thread_count_respects_the_container_cpu_quota(
    system_files: dict[str, str], quota: dict[str, str], expected: int
) -> None:
    system_files.update(quota)
    assert choose_default_threads() == expected


def test_every_cpu_counts_as_a_core_without_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_read_file", lambda path: "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert choose_default_threads() == 3


def test_disallowed_cpu_is_rejected_with_a_list_of_allowed_ones(system_files: dict[str, str]) -> None:
    check_affinity((0, 7))
    with pytest.raises(
        UsageError, match=r"is not allowed to run on CPU 99\n  next: use only these CPUs: 0, 1, 2, 3, 4, 5, 6, 7"
    ):
        check_affinity((0, 99))
