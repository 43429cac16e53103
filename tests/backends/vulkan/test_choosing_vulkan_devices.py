"""Which Vulkan device runs: by number, by name, the best; and the one sentence where none can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_devices import CPU, INTEGRATED, FakeDevice, FakeVulkan

from zinc_rt.backends.vulkan import icd, layers, loader
from zinc_rt.backends.vulkan import tier as vulkan_tier
from zinc_rt.backends.vulkan.choose import choose_device
from zinc_rt.backends.vulkan.device import list_devices, open_device
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.physical_device import FEATURES, FLOAT_CONTROLS
from zinc_rt.cli.devices import main as devices_command
from zinc_rt.engine import devices
from zinc_rt.engine.devices import choose_tier
from zinc_rt.host.errors import UnsupportedError, UsageError

Machine = Callable[..., FakeVulkan]
SOFTWARE = FakeDevice("fakepipe", CPU)
CARD, CHIP = FakeDevice("Fake 9000"), FakeDevice("Fake Graphics", INTEGRATED)


@pytest.fixture
def fake_machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """machine(*devices): this machine's Vulkan has these from now on."""

    def create_instance(*devices: FakeDevice, instance: int = 0) -> FakeVulkan:
        vulkan = FakeVulkan(devices, instance)
        monkeypatch.setattr(loader, "load_vulkan", lambda: vulkan)
        return vulkan

    return create_instance


def test_gpus_are_listed_first_in_driver_order(fake_machine: Machine) -> None:
    fake_machine(SOFTWARE, CHIP, CARD, FakeDevice("Fake 100"))
    devices = list_devices()
    assert [(device.index, device.name, device.position) for device in devices] == [
        (0, "Fake 9000", 2), (1, "Fake 100", 3), (2, "Fake Graphics", 1), (3, "fakepipe", 0),
    ]  # fmt: skip
    assert devices[0].driver == "fakedrv 7.1" and devices[0].memory == 8 << 30 and devices[3].is_cpu


@pytest.mark.parametrize(
    ("selector", "name"),
    [("", "Fake 9000"), ("hw", "Fake 9000"), ("cpu", "fakepipe"), ("1", "Fake Graphics"), ("PIPE", "fakepipe"),
     ("9000", "Fake 9000")],
)  # fmt: skip
def test_device_is_selected_by_number_name_or_rank(fake_machine: Machine, selector: str, name: str) -> None:
    fake_machine(SOFTWARE, CHIP, CARD)
    result, reason = choose_device(list_devices(), selector)
    assert result.name == name and reason.startswith(name) and ("software" in reason) is result.is_cpu


@pytest.mark.parametrize(
    ("selector", "message"),
    [("7", "vulkan:7: no such device; there are 3 devices"), ("voodoo", "the name matches no device"),
     ("fake", "the name matches vulkan:0 and vulkan:1 and vulkan:2")],
)  # fmt: skip
def test_number_or_name_matching_none_or_several_is_a_usage_error(
    fake_machine: Machine, selector: str, message: str
) -> None:
    fake_machine(SOFTWARE, CHIP, CARD)
    with pytest.raises(UsageError) as error:
        choose_tier("vulkan", f"vulkan:{selector}")
    assert message in error.value.message
    assert error.value.next == "choose one: vulkan:0 Fake 9000, vulkan:1 Fake Graphics, vulkan:2 fakepipe"
    assert error.value.exit_code == 2


def test_first_of_two_equal_gpus_is_selected_and_reported(fake_machine: Machine) -> None:
    fake_machine(SOFTWARE, CARD, CARD)
    choice = choose_tier("vulkan")
    assert (
        "Fake 9000, fakedrv 7.1; the first of 2 identical devices; --device vulkan:1 selects the next"
        in choice.why
    )
    assert choose_tier("auto", "vulkan:1").device == "1"


@pytest.mark.parametrize(
    ("device", "missing_feature"),
    [
        (FakeDevice(version=(1, 1, 0)), "supports Vulkan 1.1.0, but 1.2 is required"),
        *[(FakeDevice(features=frozenset(FEATURES) - {name}), f"lacks {name}") for name in FEATURES],
        *[(FakeDevice(float_controls=frozenset(FLOAT_CONTROLS) - {n}), f"lacks {n}") for n in FLOAT_CONTROLS],
        (FakeDevice(invocations=64), "maxComputeWorkGroupInvocations 64, but 128 is required"),
        (FakeDevice(shared_bytes=8192), "maxComputeSharedMemorySize 8192, but 16384 is required"),
        (FakeDevice(grid=1000), "maxComputeWorkGroupCount 1000, but 65535 is required"),
        (FakeDevice(queue_flags=(1,)), "has no compute queue"),
        (FakeDevice(heap_bytes=0), "offers no memory of its own"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_device_lacking_a_feature_is_skipped_by_name(
    fake_machine: Machine, device: FakeDevice, missing_feature: str
) -> None:
    fake_machine(device, SOFTWARE)
    assert choose_tier("vulkan").why.startswith("vulkan: asked for; fakepipe")
    with pytest.raises(UnsupportedError, match="Fake 9000: its driver ") as error:
        choose_tier("vulkan", "vulkan:0")
    assert missing_feature in error.value.message and "vulkan:1 fakepipe" in error.value.next
    fake_machine(device)
    with pytest.raises(UnsupportedError) as error:
        choose_tier("vulkan")
    assert (
        "no Vulkan device can run models: Fake 9000: " in error.value.message
        and missing_feature in error.value.message
    )


def test_hw_never_selects_a_software_driver(fake_machine: Machine) -> None:
    fake_machine(SOFTWARE)
    with pytest.raises(UnsupportedError, match="--device hw: this machine has no GPU with Vulkan") as error:
        choose_tier("vulkan", "hw")
    assert error.value.next == "choose one: vulkan:0 fakepipe"
    assert choose_tier("vulkan").why.endswith("(software driver: slower than a GPU)")


def test_vulkan_device_is_rejected_for_other_tiers(fake_machine: Machine) -> None:
    fake_machine(CARD)
    with pytest.raises(UsageError, match="--device vulkan:0 belongs to tier vulkan, not to t_cpu"):
        choose_tier("t_cpu", "vulkan:0")
    assert choose_tier("t_cpu", "vulkan:0", simulate=True).tier == "t_cpu", "validate compares it with others"
    assert choose_tier("vulkan", "vulkan:Fake", simulate=True).device == "Fake"


def test_auto_never_selects_vulkan_but_mentions_it(fake_machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_machine(SOFTWARE, CARD)
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)
    monkeypatch.setattr(devices, "has_gpu", lambda: True)
    choice = choose_tier("auto")
    assert choice.tier.startswith("t_cpu")
    assert choice.why.endswith("Vulkan runs on Fake 9000, fakedrv 7.1: --tier vulkan")
    fake_machine(SOFTWARE)
    assert "Vulkan" not in choose_tier("auto").why, "a driver in software is no GPU of the machine"


def test_driver_error_names_device_and_driver(fake_machine: Machine) -> None:
    vulkan = fake_machine(FakeDevice(opens=-3))
    with pytest.raises(VulkanError) as error:
        open_device(list_devices()[0])
    assert error.value.message == "Fake 9000 (fakedrv 7.1): vkCreateDevice returned VK_ERROR_INITIALIZATION_FAILED"
    assert vulkan.calls[-1] == "vkDestroyInstance", "what was made before is destroyed"


def test_removed_device_is_not_opened(fake_machine: Machine) -> None:
    fake_machine(CARD, CHIP)
    second = list_devices()[1]
    fake_machine(CARD)
    with pytest.raises(UnsupportedError, match="Fake Graphics is no longer available"):
        open_device(second)


def test_compute_only_queue_family_is_preferred(fake_machine: Machine) -> None:
    vulkan = fake_machine(FakeDevice(queue_flags=(7, 4, 6)))
    with open_device(list_devices()[0]) as device:
        assert [queue.family for queue in device.queues] == [2]
    assert vulkan.calls[-2:] == ["vkDestroyDevice", "vkDestroyInstance"]


# --- loader and drivers ---


@pytest.fixture
def no_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "LIBRARIES", ("libnovulkan.so.9",))
    loader.load_vulkan.cache_clear()


def set_driver_files(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    monkeypatch.setenv("VK_DRIVER_FILES", ":".join(map(str, files)))


def write_manifest(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_missing_loader_and_driver_error_prints_the_apt_command(
    no_loader: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_driver_files(monkeypatch, tmp_path / "none.json")
    with pytest.raises(UnsupportedError) as error:
        choose_tier("vulkan")
    assert "no Vulkan loader (libvulkan.so.1) and no loadable driver" in error.value.message
    assert "none.json: no such file" in error.value.message
    assert "apt install mesa-vulkan-drivers libvulkan1" in error.value.next and error.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "has no library path (ICD.library_path)"),
        ('{"ICD": {}}', "has no library path (ICD.library_path)"),
        ('{"ICD": {"library_path": "./libgone.so"}}', "its library cannot be loaded: "),
    ],
)
def test_broken_manifest_is_explained(tmp_path: Path, text: str, problem: str) -> None:
    result = icd.read_manifest(write_manifest(tmp_path / "icd.json", text))
    assert result.trouble.startswith(problem) and "Traceback" not in result.trouble


def test_drivers_without_devices_are_listed_with_their_errors(
    fake_machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_machine()
    broken = write_manifest(tmp_path / "broken.json", "{")
    set_driver_files(monkeypatch, broken)
    with pytest.raises(UnsupportedError) as error:
        choose_tier("vulkan")
    message = error.value.message
    assert f"VK_DRIVER_FILES={broken}: no Vulkan driver found a device ({broken}: is not JSON)" in message
    assert "apt install" in error.value.next


def test_loader_without_drivers_does_not_print_a_traceback(fake_machine: Machine) -> None:
    fake_machine(FakeDevice(), instance=-9)  # what Vulkan-Loader answers where it finds none
    probe = vulkan_tier.probe(devices.Host(1))
    assert not probe.usable and "no Vulkan driver found a device" in probe.why
    assert "apt install" in probe.next


def test_driver_alone_works_without_the_loader(
    vulkan_driver: object, no_loader: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [item for item in icd.list_installed_drivers() if not item.trouble]
    for item in good:
        set_driver_files(monkeypatch, Path(item.manifest))
        loader.load_vulkan.cache_clear()
        try:
            devices = list_devices()
        except (UnsupportedError, VulkanError):
            continue
        if devices:
            assert loader.load_vulkan().source == item.library
            break
    else:
        pytest.fail("no driver works without the loader")
    loader.load_vulkan.cache_clear()


def test_manifest_search_paths_match_the_loader(tmp_path: Path) -> None:
    folder = tmp_path / "vulkan" / "icd.d"
    folder.mkdir(parents=True)
    mine = write_manifest(folder / "mine.json", "{}")
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_DIRS": "/none", "HOME": "/none"}
    assert icd.find_manifests(environment)[0] == mine
    assert icd.find_manifests({"VK_ICD_FILENAMES": "/a.json:/b.json"}) == [Path("/a.json"), Path("/b.json")]
    assert icd.find_manifest_override({"VK_ICD_FILENAMES": "/a.json"}) == "VK_ICD_FILENAMES=/a.json"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        (
            '{"file_format_version": "1.0.0", "ICD": {"library_path": "/gone.so", "api_version": "1.3.0"}}',
            "/gone.so",
        ),
    ],
)
def test_broken_manifest_is_reported_regardless_of_the_loader(
    vulkan_driver: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    broken = write_manifest(tmp_path / "broken.json", text)
    set_driver_files(monkeypatch, broken)
    with pytest.raises(UnsupportedError) as error:
        choose_tier("vulkan")
    assert f"no Vulkan driver found a device ({broken}: " in error.value.message and message in error.value.message
    assert "apt install" in error.value.next and "\n" not in error.value.message


def write_layer(path: Path, name: str, **more: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"file_format_version": "1.0.0", "layer": {"name": name, **more}}), encoding="utf-8"
    )


def test_active_layers_are_listed_and_missing_ones_reported(tmp_path: Path) -> None:
    folder = tmp_path / "vulkan"
    write_layer(folder / "explicit_layer.d" / "a.json", "VK_LAYER_A")
    write_layer(folder / "implicit_layer.d" / "b.json", "VK_LAYER_B", disable_environment={"NO_B": "1"})
    write_layer(folder / "implicit_layer.d" / "c.json", "VK_LAYER_C", enable_environment={"WITH_C": "1"})
    (folder / "implicit_layer.d" / "d.json").write_text("{", encoding="utf-8")
    here = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_CONFIG_DIRS": "/none",
        "XDG_DATA_DIRS": "/none",
        "HOME": "/none",
    }
    assert layers.list_active_layers(here) == ("VK_LAYER_B",)
    asked = {**here, "VK_INSTANCE_LAYERS": "VK_LAYER_A:VK_LAYER_GONE", "WITH_C": "1", "NO_B": "1"}
    assert layers.list_active_layers(asked) == ("VK_LAYER_A", "VK_LAYER_C")
    assert layers.list_missing_layers(asked) == ("VK_LAYER_GONE",)


# --- what is listed ---


def test_devices_lists_each_with_its_reason_and_marks_software(
    fake_machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_machine(SOFTWARE, CARD, FakeDevice("Old 1", version=(1, 0, 3)))
    assert devices_command([]) == 0
    output = capsys.readouterr().out
    rows = {line.split("  ")[0]: line for line in output.splitlines() if line.startswith("vulkan:")}
    assert set(rows) == {"vulkan:0 Fake 9000", "vulkan:1 Old 1", "vulkan:2 fakepipe"}
    assert " yes " in rows["vulkan:0 Fake 9000"] and "8,192 MiB" in rows["vulkan:0 Fake 9000"]
    assert (
        " no " in rows["vulkan:1 Old 1"] and "supports Vulkan 1.0.3, but 1.2 is required" in rows["vulkan:1 Old 1"]
    )
    assert "software driver: slower than a GPU" in rows["vulkan:2 fakepipe"]
    assert "next      vulkan:1 Old 1 vulkan: update its driver" in output
