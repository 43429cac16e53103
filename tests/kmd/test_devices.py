"""`zinc-rt devices`: what a person reads on machines with and without a GPU."""

from __future__ import annotations

import argparse
import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_driver import NODES, PARAMETER, RENDER, FakeDriver

from zinc_rt.backends.vulkan import tier
from zinc_rt.cli.devices import show_devices
from zinc_rt.cli.observer import CommandObserver
from zinc_rt.kmd.discover import Gpu, TierAnswer, check_kfd, check_user_queues, find_gpus
from zinc_rt.kmd.driver import Driver


@pytest.fixture(autouse=True)
def no_vulkan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines here are fake and have no Vulkan driver."""
    monkeypatch.setattr(tier, "list_devices", lambda: ())


def print_devices(driver: Driver | None, capsys: pytest.CaptureFixture[str], json_path: str | None = None) -> str:
    assert show_devices(argparse.Namespace(json=json_path, observer=CommandObserver()), driver) == 0
    return capsys.readouterr().out


def without_gpu() -> FakeDriver:
    driver = FakeDriver()
    driver.files.clear()
    driver.nodes.clear()
    return driver


def test_machine_without_gpus_lists_the_cpu_and_explains_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = print_devices(without_gpu(), capsys)
    assert "no AMD GPU found" in text and "no KFD device" in text
    assert text.splitlines()[-1] == "usable    t_cpu_native on cpu, t_cpu on cpu"


def test_other_operating_systems_report_that_gpu_tiers_need_linux(capsys: pytest.CaptureFixture[str]) -> None:
    assert "GPU tiers need Linux" in print_devices(None, capsys)


def test_gpu_in_two_listings_is_found_once() -> None:
    machine = find_gpus(FakeDriver())
    (gpu,) = machine.gpus
    assert (gpu.render_path, gpu.arch, gpu.pci_address, gpu.kmd_name) == (
        RENDER,
        "gfx1201",
        "0000:03:00.0",
        "amdgpu",
    )


def test_report_matches_the_table_and_adds_details(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    driver = FakeDriver()
    path = tmp_path / "report.json"
    text = print_devices(driver, capsys, str(path))
    report = json.loads(path.read_text())
    assert [result["id"] for result in report["results"]] == [
        "renderD128 gfx1201/t2",
        "renderD128 gfx1201/t1",
        "cpu/t_cpu_native",
        "cpu/t_cpu",
        "host/vulkan",
    ]
    for result in report["results"]:
        assert result["reason"] in text and result["advice"] in text
    t2, t1, *_ = report["results"]
    assert t2["measure"]["userq_num_slots"] == 4 and t1["measure"]["save_area"][0]["bytes"] == 0x1D57000
    assert report["details"]["gpus"][0]["properties"]["simd_count"] == 128
    assert report["device"]["simulated"] is True
    assert driver.remaining_resources() == {}


def test_probing_leaks_nothing_and_binds_nothing() -> None:
    driver = FakeDriver()
    (gpu,) = find_gpus(driver).gpus
    assert check_kfd(driver, gpu).usable and check_user_queues(driver, gpu).usable
    assert driver.remaining_resources() == {}
    assert set(driver.call_names()) <= {
        "open",
        "close",
        "AMDKFD_IOC_GET_VERSION",
        "DRM_IOCTL_VERSION",
        "DRM_IOCTL_AMDGPU_INFO",
    }


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize(
    ("check", "what"), [(check_kfd, "open /dev/kfd"), (check_user_queues, "open render node")]
)
def test_node_that_does_not_open_is_reported_with_advice(
    check: Callable[[Driver, Gpu], TierAnswer], what: str, number: int
) -> None:
    driver = FakeDriver()
    driver.fail = (0, number)
    (gpu,) = find_gpus(driver).gpus
    answer = check(driver, gpu)
    assert not answer.usable and answer.next and answer.why.startswith(what)
    assert driver.remaining_resources() == {}


@pytest.mark.parametrize(
    ("change", "tier", "words"),
    [
        ({"gfx_target_version": 90010}, "t1", "packets are known for gfx11 and gfx12"),
        ({"gfx_target_version": 120001}, "t2", "amdgpu.user_queue=1"),
    ],
)
def test_unusable_gpu_is_reported_with_the_reason(
    change: dict[str, int], tier: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = FakeDriver(**change)
    driver.device["userq_ip_mask"] = 0
    driver.files[PARAMETER] = b"-1\n"
    text = print_devices(driver, capsys)
    assert words in text and f" {tier} " in text


def test_old_kfd_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    driver = FakeDriver()
    driver.version = (1, 6)
    text = print_devices(driver, capsys)
    assert "KFD interface 1.6: expected 1.14" in text and "use Linux 6.6 or newer" in text
    assert driver.remaining_resources() == {}


def test_gpu_missing_from_kfd_keeps_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    driver = FakeDriver()
    for path in [path for path in driver.files if path.startswith(f"{NODES}/1")]:
        del driver.files[path]
    text = print_devices(driver, capsys)
    assert "KFD does not list this GPU" in text and "renderD128" in text
