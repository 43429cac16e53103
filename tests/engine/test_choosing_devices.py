"""Which tier runs, on which device: what was asked for, and what cannot be, in a sentence."""

from __future__ import annotations

import argparse
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.amd import t1, t2
from zinc_rt.backends.base import Device, device_kind
from zinc_rt.backends.cpu import native
from zinc_rt.backends.spec import DeviceKind, Host
from zinc_rt.cli.options import check_options_used
from zinc_rt.engine import devices
from zinc_rt.engine.devices import ORACLE, choose_tier, probe_tiers
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.isa.target import TARGETS
from zinc_rt.kernels.sets import SETS
from zinc_rt.kmd.discover import Gpu, TierAnswer, find_gpus
from zinc_rt.kmd.topology import TopologyNode, read_topology
from zinc_rt.sim import chips
from zinc_rt.sim.in_process import SimDriver

CARD = TopologyNode(1, 7, "", {"gfx_target_version": 120001, "drm_render_minor": 128})


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)


@pytest.fixture
def locked_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that exists but cannot be opened."""

    def refuse_driver(driver: object, gpu: Gpu) -> TierAnswer:
        return TierAnswer(False, "open /dev/kfd: EACCES", "add yourself to the group render")

    monkeypatch.setattr(devices, "find_amd_gpus", lambda: (Gpu("/dev/dri/renderD128", node=CARD),))
    for module, check in ((t1, "check_kfd"), (t2, "check_user_queues")):
        monkeypatch.setattr(module, check, refuse_driver)


@pytest.mark.parametrize("tier", ["t1", "t2", "t1:gfx1201"])
def test_validate_simulates_only_without_any_gpu(no_gpu: None, tier: str) -> None:
    assert choose_tier(tier, simulate=True).simulated
    with pytest.raises(UnsupportedError, match="no AMD GPU was found"):
        choose_tier(tier)
    with pytest.raises(UnsupportedError, match="--device sim"):
        choose_tier(tier, "hw", simulate=True)


@pytest.mark.parametrize("device", ["auto", "hw"])
@pytest.mark.parametrize("simulate", [False, True])
def test_unusable_gpu_is_an_error_with_cause_and_advice(locked_gpu: None, device: str, simulate: bool) -> None:
    with pytest.raises(UnsupportedError, match="EACCES") as error:
        choose_tier("t1", device, simulate=simulate)
    message = str(error.value)
    assert "renderD128 gfx1201" in message and "group render" in message and "--device sim" in message
    assert choose_tier("t1", "sim", simulate=simulate).simulated


@pytest.mark.parametrize("device", ["auto", "hw", "cpu"])
def test_auto_never_simulates_and_reports_skipped_tiers(locked_gpu: None, device: str) -> None:
    choice = choose_tier("auto", device)
    assert choice.tier == "t_cpu_native" and not choice.simulated
    assert ("EACCES" in choice.why) is (device != "cpu") and "not t2: " in choice.why


def test_auto_without_compiler_selects_the_oracle_and_explains(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_compiler(*_: Any, **__: Any) -> None:
        raise UnsupportedError(
            "no C compiler: the package ziglang is not installed", next="pip install 'zinc-rt[native]'"
        )

    monkeypatch.setattr(native, "build_library", no_compiler)
    choice = choose_tier("auto")
    assert (
        choice.tier == "t_cpu"
        and "not t_cpu_native: no C compiler: the package ziglang is not installed" in choice.why
    )
    with pytest.raises(UnsupportedError, match=r"no C compiler[^\n]*\n  next: pip install 'zinc-rt\[native\]'"):
        choose_tier("t_cpu_native")


def test_auto_skips_tier_without_the_ordering(no_gpu: None) -> None:
    assert choose_tier("auto", ordering="canonical-1-q8").tier == "t_cpu_native"
    choice = choose_tier("auto", ordering="float32-dequant")
    assert choice.tier == "t_cpu" and "not t_cpu_native: no float32-dequant" in choice.why
    assert choose_tier("auto", "sim", ordering="canonical-1-q8").tier == "t2"
    assert choose_tier("auto", "sim", ordering="float32-dequant").tier == "t_cpu"


def test_auto_accepts_a_named_simulated_device(no_gpu: None) -> None:
    choice = choose_tier("auto", "sim", sanitizer="full")
    assert (choice.tier, choice.simulated, choice.options) == ("t2", True, {"sanitizer": "full"})


def test_every_tier_has_a_probe_result(no_gpu: None) -> None:
    answers = {row.tier: result for row, result in probe_tiers()}
    assert list(answers) == ["t2", "t1", "t_cpu_native", "t_cpu", "vulkan", "t_cuda", "t_metal", "t_intel"]
    usable = {tier for tier, result in answers.items() if result.usable}
    assert usable - {"vulkan"} == {"t_cpu_native", "t_cpu"}, "vulkan where a driver is installed"
    assert all(result.why for result in answers.values())


@pytest.mark.parametrize("tier", ["t1", "t2"])
def test_probe_uses_the_given_device(tier: str) -> None:
    driver = SimDriver()
    probe = registry.spec(tier).probe(Host(1, driver, find_gpus(driver).gpus))
    assert probe.usable and [device.usable for device in probe.devices] == [True] and probe.gpu is not None
    driver.close_all()


def test_memory_bandwidth_is_reported_for_known_cards() -> None:
    driver = SimDriver()
    [node] = read_topology(driver).gpus
    assert node.memory_bytes_per_second == pytest.approx(644e9, rel=1e-3)
    driver.close_all()
    assert TopologyNode(1, 7, "", {"gfx_target_version": 90010}, {}, (4096, 1600)).memory_bytes_per_second == 0
    assert CARD.memory_bytes_per_second == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"threads": 4}, "tier t1 does not support --threads"),
        ({"sanitizer": "full"}, "--sanitizer needs a simulated device, which t1 does not use"),
        ({"facts": "f.json"}, "--facts needs a simulated device, which t1 does not use"),
    ],
)
def test_unused_option_is_an_error(options: dict[str, Any], sentence: str) -> None:
    namespace = argparse.Namespace(**{"threads": None, "sanitizer": None, "facts": None, **options})
    card = devices.Choice(registry.spec("t1"), "", gpu=Gpu("/dev/dri/renderD128", node=CARD))
    with pytest.raises(UsageError, match=sentence):
        check_options_used([card], namespace)
    simulated = devices.Choice(registry.spec("t1"), "", True)
    check_options_used([card, ORACLE] if "threads" in options else [card, simulated], namespace)


def test_registry_rows_name_existing_kernel_sets() -> None:
    for row in registry.built():
        if row.simulable:
            assert set(row.kernel_sets) <= set(SETS)


@pytest.mark.parametrize("tier", ["t_cpu", "t_cpu_native"])
def test_cpu_tier_opens_no_gpu(tier: str) -> None:
    with pytest.raises(UsageError, match=f"--device sim supports t2, t1, not {tier}"):
        choose_tier(tier, "sim")
    assert not choose_tier(tier, "sim", simulate=True).simulated  # beside others, the device is for those


@pytest.mark.parametrize("requested", ["auto", "t1", "t2"])
def test_simulated_chip_without_kernels_runs_no_models(requested: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = SimpleNamespace(isa=replace(TARGETS["gfx1151"], kernels=""))
    monkeypatch.setattr(chips, "find_chip", lambda name: bare)
    with pytest.raises(UnsupportedError, match=r"^no kernels for gfx1151") as error:
        choose_tier(requested, "sim", chip="gfx1151")
    assert error.value.exit_code == 2 and "or sim:gfx1200 or sim:gfx1201" in error.value.next
    message = {row.tier: state for row, state in probe_tiers("sim", chip="gfx1151")}
    assert not message["t1"].usable and message["t1"].why == error.value.message


@pytest.mark.parametrize("chip", ["gfx1151", "strix-halo", "gfx1100", "gfx1102", "gfx1200"])
@pytest.mark.parametrize("requested", ["auto", "t1", "t2"])
def test_models_run_on_every_simulated_chip(chip: str, requested: str) -> None:
    assert choose_tier(requested, "sim", chip=chip).simulated


def test_device_kind_follows_tier_unless_simulated_or_software() -> None:
    kinds = {row.tier: row.kind for row in registry.built()}
    assert {tier for tier, kind in kinds.items() if kind is DeviceKind.HOST} == {"t_cpu", "t_cpu_native"}
    assert kinds["t1"] is kinds["t2"] is DeviceKind.GPU and kinds["vulkan"] is DeviceKind.API_GPU
    for row in registry.built():
        for simulated, software, kind in (
            (False, False, row.kind),
            (True, False, DeviceKind.SIMULATED),
            (False, True, DeviceKind.SOFTWARE),
        ):
            device = Device("", "", simulated=simulated, software=software)
            backend: Any = SimpleNamespace(spec=row, device=device)
            assert device_kind(backend) is kind
            assert kind.uses_host_memory is (simulated or software or not (row.simulable or row.lists_devices))
