"""Starting a model on a GPU asks what pm4-test passed there, on this card, kernel, module and firmware."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cards import RENDER, Card

from zinc_rt.cli import logits
from zinc_rt.engine import checked, devices
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.host import files, locks
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.discover import find_gpus

MODEL = str(FOLDER / "qwen3-q.gguf")


@pytest.fixture
def unprobed_card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Card:
    """The machine's only GPU, on which no probe has run."""
    card = Card()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(files, "open_lock_directory", lambda: tmp_path)
    monkeypatch.setattr(devices, "find_linux_driver", lambda: card)
    yield card
    card.close_all()


def read_setup(card: Card) -> checked.TestedSetup:
    return checked.identify_setup(card, find_gpus(card).gpus[0])


def test_setup_names_chip_kernel_module_and_firmware_but_not_card(unprobed_card: Card) -> None:
    unprobed_card.files = {"/sys/module/amdgpu/version": "6.10.5\n", "/sys/module/amdgpu/srcversion": "ABCDEF\n"}
    setup = read_setup(unprobed_card)
    assert (setup.chip, setup.pci_id, setup.kernel) == ("gfx1201", "1002:7551:c0", "7.0.4")
    assert setup.module == "6.10.5 ABCDEF" and {"mec", "mes", "sdma"} <= set(setup.firmware)
    unique = unprobed_card.read_file("/sys/class/drm/renderD128/device/unique_id").decode().strip()
    assert len(setup.card) == 16 and unique not in json.dumps(setup.card)


def test_auto_skips_unprobed_tier_and_reports_it(unprobed_card: Card) -> None:
    choice = devices.choose_tier("auto")
    assert choice.tier == "t_cpu_native" and "\n" not in choice.why
    assert "not t2: renderD128 gfx1201: pm4-test has not passed on this card, kernel and driver" in choice.why
    assert choice.why.count("pm4-test has not passed") == 2


@pytest.mark.parametrize("device", ["auto", "hw"])
def test_forced_unprobed_tier_is_rejected_with_command_to_run(unprobed_card: Card, device: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        devices.choose_tier("t1", device, simulate=True)
    assert error.value.exit_code == 2
    assert f"zinc-rt pm4-test --device {RENDER} --tiers t1 --hazard 1" in str(error.value)
    assert "--unchecked" in str(error.value)


def test_only_the_tier_that_passed_is_accepted(unprobed_card: Card) -> None:
    checked.write_record(read_setup(unprobed_card), "t1", failed=[], hazard=1, probes=50)
    choice = devices.choose_tier("auto")
    assert choice.tier == "t1" and not choice.simulated and not choice.unchecked
    assert "not t2: " in choice.why and "pm4-test passed here" in choice.why
    with pytest.raises(UnsupportedError, match=r"t2.*pm4-test has not passed"):
        devices.choose_tier("t2")


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("/proc/sys/kernel/osrelease", "7.1.0\n", "kernel 7.0.4 → 7.1.0"),
        ("/sys/module/amdgpu/srcversion", "0123\n", "amdgpu module unknown → 0123"),
        ("/sys/class/drm/renderD128/device/fw_version/sdma_fw_version", "0x00000001\n", "sdma firmware"),
    ],
)
def test_change_in_the_setup_invalidates_the_pass_and_is_named(
    unprobed_card: Card, path: str, text: str, message: str
) -> None:
    checked.write_record(read_setup(unprobed_card), "t1", failed=[], hazard=1, probes=50)
    unprobed_card.files = {path: text}
    with pytest.raises(UnsupportedError) as error:
        devices.choose_tier("t1")
    assert "since then: " in str(error.value) and message in str(error.value)


def test_pass_does_not_apply_to_another_card_of_the_same_model(unprobed_card: Card) -> None:
    checked.write_record(read_setup(unprobed_card), "t1", failed=[], hazard=1, probes=50)
    unprobed_card.files = {"/sys/class/drm/renderD128/device/unique_id": "0123456789abcdef\n"}
    with pytest.raises(UnsupportedError, match="has not passed on this card"):
        devices.choose_tier("t1")


def test_later_failure_invalidates_an_earlier_pass(unprobed_card: Card) -> None:
    checked.write_record(read_setup(unprobed_card), "t1", failed=[], hazard=1, probes=50)
    checked.write_record(read_setup(unprobed_card), "t1", failed=["P20/t1"], hazard=1, probes=3)
    with pytest.raises(UnsupportedError, match=r"failed here on .*P20/t1"):
        devices.choose_tier("t1")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "zinc-rt-checked/9", "rows": []}', '{"schema": 1}'])
def test_damaged_record_is_ignored_reported_and_replaced(unprobed_card: Card, text: str) -> None:
    path = checked.record_path()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UnsupportedError, match=r"checked\.json: (damaged|schema)"):
        devices.choose_tier("t1")
    checked.write_record(read_setup(unprobed_card), "t1", failed=[], hazard=1, probes=50)
    assert devices.choose_tier("t1").tier == "t1"


def test_unchecked_overrides_and_is_recorded_in_the_choice(unprobed_card: Card) -> None:
    choice = devices.choose_tier("t1", unchecked=True)
    assert choice.gpu is not None
    assert choice.shortcut == "t1: pm4-test has not passed on this card, kernel and driver (--unchecked)"
    assert devices.choose_tier("auto", unchecked=True).tier == "t2"
    checked.write_record(read_setup(unprobed_card), "t1", failed=[], hazard=1, probes=50)
    assert not devices.choose_tier("t1", unchecked=True).shortcut, "nothing is overridden where it passed"


def test_simulated_devices_need_no_probe(unprobed_card: Card) -> None:
    assert devices.choose_tier("t1", "sim").simulated


def test_devices_shows_whether_a_tier_passed_pm4_test(unprobed_card: Card) -> None:
    from zinc_rt.cli.devices import list_tiers

    checked.write_record(read_setup(unprobed_card), "t1", failed=[], hazard=1, probes=50)
    rows = {row.tier: row for row in list_tiers(find_gpus(unprobed_card), unprobed_card)}
    assert "pm4-test passed here" in rows["t1"].why and not rows["t1"].next
    assert "has not passed" in rows["t2"].why and f"zinc-rt bring-up --device {RENDER}" in rows["t2"].next


def test_unchecked_is_reported_and_card_lock_is_released(unprobed_card: Card, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    line = ["--model", MODEL, "--tokens", "1,2", "--out", str(tmp_path / "o.npz"), "--json", str(out)]
    assert logits.main([*line, "--tier", "t1"]) == 2
    assert logits.main([*line, "--tier", "t1", "--unchecked"]) == 0
    report = json.loads(out.read_text())
    assert report["shortcuts"] == ["t1: pm4-test has not passed on this card, kernel and driver (--unchecked)"]
    locks.give_back(locks.take_lock(RENDER))
    assert logits.main([*line, "--device", "sim", "--unchecked"]) == 2, "no card to override for"
