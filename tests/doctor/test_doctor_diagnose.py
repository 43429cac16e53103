"""First causes come first, consequences under them, and nothing is invented where a capture is silent."""

from __future__ import annotations

import json
import random
import re

import pytest
import sick_machines as corpus

from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.diagnose import Diagnosis, diagnose
from zinc_rt.doctor.read_machine import read_machine
from zinc_rt.doctor.rules.table import RULES
from zinc_rt.doctor.show import format_diagnosis

GPU = "0000:03:00.0"
SMU = f"amdgpu {GPU}: SMU: No response msg_reg: 12 resp_reg: 0"
MES = f"amdgpu {GPU}: MES failed to respond to msg=REMOVE_QUEUE"


def make_sick(base: str = "r9700-ubuntu", log: str = "", **files: str) -> Diagnosis:
    """A base machine with lines appended to its log and other files replaced (`__` for `/`)."""
    start = dict(corpus.load_base(base).files)
    start["kernel.log"] = start.get("kernel.log", b"") + log.encode()
    start |= {name.replace("__", "/"): text.encode() for name, text in files.items()}
    return diagnose(MachineCapture(start))


def first_cause(diagnosis: Diagnosis) -> str:
    assert diagnosis.first is not None
    return diagnosis.first.id


def test_earlier_event_explains_later_event() -> None:
    assert first_cause(make_sick(log=f"{SMU}\n{MES}\n")) == "log.smu"
    assert first_cause(make_sick(log=f"{MES}\n{SMU}\n")) == "log.mes"


def test_consequences_follow_and_name_their_cause() -> None:
    findings = make_sick(
        log=f"{MES}\namdgpu {GPU}: GPU reset begin!. Source:  3\namdgpu {GPU}: GPU Recovery Failed: -22\n"
    ).findings
    assert [f.id for f in findings][:3] == ["log.mes", "log.reset", "log.reset-failed"]
    assert findings[0].cause_of == ("log.reset", "log.reset-failed")


def test_log_of_other_gpu_is_ignored_when_one_is_selected() -> None:
    base = corpus.load_base("two-r9700")
    second = base.variables["second"]
    files = {
        **base.files,
        "kernel.log": base.files["kernel.log"] + f"amdgpu {second}: MES ring buffer is full.\n".encode(),
    }
    assert diagnose(MachineCapture(files), device=second).exit_code() == 1
    assert diagnose(MachineCapture(files), device="renderD129").exit_code() == 1
    assert diagnose(MachineCapture(files), device="/dev/dri/renderD128").exit_code() == 0
    assert diagnose(MachineCapture(files), device="card1").exit_code() == 0


def test_fault_of_unrelated_gpu_is_a_note() -> None:
    igpu = corpus.load_base("igpu-and-dgpu").variables["igpu"]
    result = make_sick(
        "igpu-and-dgpu", f"amdgpu {igpu}: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=2\n"
    )
    assert result.exit_code() == 0 and result.first is None
    assert "log.ring-timeout" in [f.id for f in result.findings]


def test_kfd_may_skip_integrated_graphics() -> None:
    result = make_sick("igpu-and-dgpu", "kfd kfd: amdgpu: skipped device 1002:13c0, PCI rejects atomics\n")
    assert result.first is None
    result = make_sick("igpu-and-dgpu", "kfd kfd: amdgpu: device 1002:13c0 NOT added due to errors\n")
    assert result.first is None and "kfd.refused" in [f.id for f in result.findings]


def test_missing_file_that_driver_does_not_need_is_a_note() -> None:
    result = make_sick(
        log=f"amdgpu {GPU}: Direct firmware load for amdgpu/gc_12_0_1_toc.bin failed with error -2\n"
    )
    assert result.first is None and "firmware.missing" in [f.id for f in result.findings]


def test_bar_assigned_after_retry_is_not_a_fault() -> None:
    bar = f"pci {GPU}: BAR 0 [mem size 0x800000000 64bit pref]"
    assert make_sick(log=f"{bar}: failed to assign\n{bar}: assigned\n").first is None


def test_symptom_quotes_reports_of_other_users() -> None:
    (machine,) = [m for m in corpus.list_machines() if m.name == "r9700-6630@r9700-dkms"]
    finding = diagnose(machine.capture).first
    assert finding is not None and finding.rows == ("gfx1201-dkms-6.19.4",)
    assert any("issues/6630" in line for line in finding.evidence)


def test_findings_are_sorted_by_severity_then_depth() -> None:
    result = make_sick(log=f"{SMU}\n", id__txt="", **{"id.txt": "uid=7(x) gid=7(x) groups=7(x)\n"})
    assert [f.id for f in result.findings if f.severity == "broken"] == ["permissions.group", "log.smu"]


def test_machine_without_gpu_lists_possible_actions() -> None:
    result = diagnose(
        MachineCapture(
            {"proc/version": b"Linux version 7.0\n", "lspci.txt": b"00:02.0 VGA compatible controller: Intel\n"}
        )
    )
    assert result.exit_code() == 77
    assert [f.id for f in result.findings] == ["gpu.none"] and "pm4-test --device sim" in result.findings[0].next


@pytest.mark.parametrize("lspci", [{}, {"lspci.txt": b"\n"}], ids=["absent", "empty"])
def test_capture_without_lspci_and_sysfs_leaves_the_gpu_unknown(lspci: dict[str, bytes]) -> None:
    result = diagnose(MachineCapture({"proc/version": b"Linux version 7.0\n", "kernel.log": b"hello\n", **lspci}))
    assert result.exit_code() == 77
    text = format_diagnosis(result, verbose=False)
    assert "no AMD GPU" not in text and "NO GPU" not in text
    assert text.splitlines()[-3:-1] == [
        "UNKNOWN   nothing found, but this is unknown: whether a GPU is present",
        "  do      lspci -nnvvv > lspci.txt",
    ]


def test_memory_encryption_explains_a_start_without_memory() -> None:
    log = f"AMD Memory Encryption Features active: SME\namdgpu {GPU}: amdgpu: Fatal error during GPU init\n"
    log += f"amdgpu {GPU}: probe with driver amdgpu failed with error -12\n"
    result = make_sick(log=log, **{"proc/cmdline": "root=x mem_encrypt=on"})
    assert result.first is not None and result.first.id == "host.memory-encryption"
    assert result.first.cause_of == ("log.init-failed",) and result.first.next.startswith("remove mem_encrypt=on ")
    raven = make_sick(log=f"amdgpu {GPU}: SME is not compatible with RAVEN\n")
    assert raven.first is not None and raven.first.id == "host.memory-encryption"


@pytest.mark.parametrize(("top_mhz", "first"), [(500, "power.clocks"), (2350, None)])
def test_card_that_offers_no_high_clock_is_limited(top_mhz: int, first: str | None) -> None:
    levels = f"0: 500Mhz *\n1: {top_mhz}Mhz \n"
    result = make_sick(**{"sys/class/drm/card1/device/pp_dpm_sclk": levels})
    assert (result.first.id if result.first else None) == first


def test_folder_of_sysfs_that_exists_already_is_no_failed_start() -> None:
    error = "[drm:amdgpu_discovery_set_ip_blocks [amdgpu]] *ERROR* Couldn't init and add ip_discovery/"
    assert make_sick(log=f"{error}\n").first is None
    assert (
        first_cause(make_sick(log=f"amdgpu {GPU}: amdgpu: invalid ip discovery binary signature\n"))
        == "log.discovery"
    )


def test_gpu_known_only_from_log_is_found() -> None:
    log = f"amdgpu {GPU}: amdgpu: Unable to locate a BIOS ROM\namdgpu: probe of {GPU} failed with error -22\n"
    result = diagnose(MachineCapture({"kernel.log": log.encode()}))
    assert first_cause(result) == "log.vbios" and result.machine.gpus[0].address == GPU


def test_empty_log_is_unknown_not_healthy() -> None:
    for log in ("", "\n \n"):
        result = make_sick(**{"kernel.log": log})
        assert result.machine.log is None and any("kernel.log" in unknown.what for unknown in result.unknown)


@pytest.mark.parametrize("seed", range(6))
def test_truncated_and_corrupted_files_raise_no_exception(seed: int) -> None:
    """Every file cut somewhere, or with bytes flipped, or replaced by noise."""
    chance = random.Random(seed)
    for name in corpus.BASES:
        files = {}
        for path, data in corpus.load_base(name).files.items():
            index = chance.randrange(len(data) + 1)
            how = chance.choice(("cut", "flip", "noise", "whole", "gone"))
            if how == "gone":
                continue
            noise = chance.randbytes(min(40, len(data)))
            files[path] = {
                "cut": data[:index],
                "flip": data[:index] + noise + data[index:],
                "noise": noise,
                "whole": data,
            }[how]
        diagnose(MachineCapture(files))


def test_id_output_in_any_format_yields_groups() -> None:
    for text in (
        "uid=1000(a) gid=1000(a) groups=1000(a),993(render)",
        "uid=1000(a) gid=1000(a) Gruppen=1000(a),993(render)\r\n",
        "uid=1000(a) gid=1000(a) 组=1000(a),993(render)",
        "uid: 1000\ngroups: a video render\n",
        "uid=1000 gid=993(render) groups=993(render)",
    ):
        user = read_machine(MachineCapture({"id.txt": text.encode()})).user
        assert user is not None and user.uid == 1000 and "render" in user.groups, text


def test_package_lists_of_every_manager_are_parsed() -> None:
    for text in (
        "linux-firmware 20260810-1\n",
        "ii  linux-firmware  20260810-1  all  Firmware\n",
        "linux-firmware-20260810-1.fc43.noarch\n",
        "linux-firmware/noble,now 20260810-1 all [installed]\n",
    ):
        packages = read_machine(MachineCapture({"packages.txt": text.encode()})).packages
        assert packages is not None and packages["linux-firmware"].startswith("20260810-1"), text


def test_driver_error_counts_when_nothing_else_explains_it() -> None:
    t1 = {"usable": False, "why": "KFD 1.2 is too old"}
    text = json.dumps({"gpus": {"renderD128": {"t1": t1, "t2": {"usable": True, "why": ""}}}})
    assert first_cause(make_sick(**{"ioctl.json": text})) == "tier.refused"
    both = make_sick(**{"ioctl.json": text, "id.txt": "uid=7(x) gid=7(x) groups=7(x)\n"}).findings
    assert both[0].id == "permissions.group" and both[0].cause_of == ("tier.refused",)
    for torn in ("{", "[]", '{"gpus": 3}', '{"gpus": {"renderD128": {"t1": 7}}}'):
        assert make_sick(**{"ioctl.json": torn}).first is None


def test_advice_omits_settings_that_are_made_or_are_the_cause() -> None:
    resume = f"amdgpu {GPU}: Unable to change power state from D3cold to D0, device inaccessible\n"
    result = make_sick(log=resume, **{"proc/cmdline": "root=x amdgpu.runpm=0"}).first
    assert result is not None and "(amdgpu.runpm=0 is set already)" in result.next
    causes = make_sick(log=f"{MES}\n", **{"proc/cmdline": "root=x amdgpu.pcie_gen_cap=1"}).findings
    assert "amdgpu.runpm=0" in next(cause.next for cause in causes if cause.id == "log.mes")


def test_unstable_machine_gets_no_probe_above_hazard_0() -> None:
    assert make_sick(log=f"{MES}\n").hazard == 0
    assert make_sick(**{"id.txt": "uid=7(x) gid=7(x) groups=7(x)\n"}).hazard is None
    assert not [
        rule.id for rule in RULES if re.search(r"pm4-test(?!.*(?:--hazard 0|--device sim|deliberate))", rule.next)
    ]


FAULT = f"amdgpu {GPU}: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:3 pasid:32812)\n"
RESET_DONE = f"amdgpu {GPU}: amdgpu: GPU reset begin!\namdgpu {GPU}: amdgpu: GPU reset(1) succeeded!\n"


def test_reset_explains_a_fault_only_until_it_ends() -> None:
    assert first_cause(make_sick(log=RESET_DONE + FAULT)) == "log.page-fault"
    assert (
        first_cause(make_sick(log=RESET_DONE.replace("GPU reset(1) succeeded!", "BACO reset") + FAULT))
        == "log.reset"
    )


def test_sensor_that_reads_as_ones_is_a_lost_gpu() -> None:
    sensor = "sys__class__drm__card1__device__hwmon__hwmon4__temp2_input"
    assert first_cause(make_sick(**{sensor: "511000\n"})) == "gpu.gone"
    assert first_cause(make_sick(**{sensor: "111000\n"})) != "gpu.gone"


def test_gpu_that_only_the_log_shows_with_radeon_has_another_driver() -> None:
    def diagnose_log(*lines: str) -> set[str]:
        return {
            finding.id for finding in diagnose(MachineCapture({"kernel.log": "\n".join(lines).encode()})).findings
        }

    started = "radeon 0000:02:00.0: VRAM: 16384M 0x0000000000000000 - 0x00000003FFFFFFFF (16384M used)"
    assert "gpu.other-driver" in diagnose_log(started)
    assert "gpu.other-driver" not in diagnose_log("radeon 0000:02:00.0: CIK support disabled by module param")
    assert "gpu.other-driver" not in diagnose_log("amdgpu 0000:02:00.0: amdgpu: Fetched VBIOS from VFCT", started)


def test_lspci_without_drivers_does_not_say_that_none_is_bound() -> None:
    def diagnose_lspci(text: str) -> set[str]:
        return {finding.id for finding in diagnose(MachineCapture({"lspci.txt": text.encode()})).findings}

    line = "03:00.0 VGA compatible controller [0300]: Advanced Micro Devices, Inc. [AMD/ATI] Navi 48 [1002:7551]\n"
    assert "gpu.no-driver" not in diagnose_lspci(line)
    assert "gpu.no-driver" in diagnose_lspci(line + "\tKernel modules: amdgpu\n")


def test_chip_of_an_older_generation_is_told_by_its_id() -> None:
    for device, unsupported in (("6604", True), ("66a1", True), ("7551", False), ("ffff", False)):
        text = f"05:00.0 Display controller [0380]: Advanced Micro Devices, Inc. [AMD/ATI] X [1002:{device}]\n"
        findings = diagnose(MachineCapture({"lspci.txt": text.encode()})).findings
        assert ("gpu.unsupported" in {finding.id for finding in findings}) == unsupported, device


def test_chip_of_an_older_generation_is_told_by_its_name() -> None:
    for name, unsupported in (
        ("Oland XT [Radeon R7 250]", True),
        ("Vega 10 XT [Radeon RX Vega 64]", True),
        ("Navi 31 [Radeon RX 7900 XT]", False),
        ("Something new", False),
    ):
        text = f"01:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] {name}\n"
        findings = diagnose(MachineCapture({"lspci.txt": text.encode()})).findings
        assert ("gpu.unsupported" in {finding.id for finding in findings}) == unsupported, name


def test_driver_nodes_prove_a_gpu_that_the_capture_does_not_list() -> None:
    """Only amdgpu creates /dev/kfd, and it is loaded for its own devices; a render node may be of any vendor."""
    kfd = "crw-rw---- 1 0 106 242, 0 /dev/kfd\n"
    render = "crw-rw---- 1 0 106 226, 128 /dev/dri/renderD128\n"
    user = "uid=1000(u) gid=1000(u) groups=1000(u)\n"
    modules = "amdgpu 19427328 2 - Live 0x0\n"

    def first(**files: str) -> str:
        found = diagnose(MachineCapture({name.replace("__", "/"): text.encode() for name, text in files.items()}))
        assert found.exit_code() != 0
        return found.first.id if found.first else ""

    assert first(**{"dev.txt": kfd + render, "id.txt": user}) == "permissions.group"
    assert first(**{"dev.txt": render, "proc__modules": modules}) == "kfd.absent"
    assert first(**{"dev.txt": render, "proc__modules": modules, ".dockerenv": "\n"}) == "container.nodes"
    assert first(**{"dev.txt": render, "id.txt": user}) == ""
    assert first(**{"dev.txt": render, "proc__modules": "i915 1 0 - Live 0x0\n"}) == ""
    intel = "00:02.0 VGA compatible controller: Intel Corporation Device\n\tKernel driver in use: i915\n"
    assert first(**{"dev.txt": render, "proc__modules": modules, "lspci.txt": intel}) == ""


def test_card_that_its_guest_has_lost_is_named_before_its_assignment() -> None:
    bound = {"sys/class/drm/card1/device/uevent": f"DRIVER=vfio-pci\nPCI_SLOT_NAME={GPU}\n"}
    lost = f"vfio-pci {GPU}: not ready 65535ms after bus reset; giving up\n"
    assert first_cause(make_sick(log=lost, **bound)) == "pci.lost"
    assert first_cause(make_sick(**bound)) == "gpu.vfio"


def test_two_replies_of_all_ones_are_a_lost_card() -> None:
    ones = f"amdgpu {GPU}: amdgpu: Failed to send message 0x28, response 0xffffffff\n"
    assert first_cause(make_sick(log=ones * 2)) == "pci.lost"
    assert first_cause(make_sick(log=ones)) == "log.smu"
    refused = f"amdgpu {GPU}: amdgpu: Failed to send message 0x28, response 0xfe\n"
    assert first_cause(make_sick(log=refused * 2)) == "log.smu-refused"


def test_resize_that_takes_the_bars_away_ends_the_start() -> None:
    resize = "[drm:amdgpu_device_resize_fb_bar [amdgpu]] *ERROR* Problem resizing BAR0 (-16).\n"

    def read(log: str) -> str:
        diagnosis = diagnose(MachineCapture({"kernel.log": log.encode()}))
        return diagnosis.first.id if diagnosis.first else ""

    ended = "[drm:amdgpu_device_init [amdgpu]] *ERROR* sw_init of IP block <gmc_v9_0> failed"
    assert read(f"{resize}{ended} -19\n") == "pci.bar-unassigned"
    assert read(f"{resize}{ended} -22\n") == "log.init-failed"
    assert read(resize + "usb 1-1: ok\n" * 9 + f"{ended} -19\n") == "log.init-failed"
    assert read(f"{resize}[drm] Initialized amdgpu 3.64.0 for {GPU} on minor 0\n") == ""


def test_root_of_a_rootless_container_is_the_user_outside() -> None:
    def read(owner: int, identity: str, group: int | None = None, mode: str = "crw-rw----") -> str:
        node = f"{mode} 1 {owner} {owner if group is None else group} 238, 0 /dev/kfd\n"
        files = {"dev.txt": node, "id.txt": identity, "run/.containerenv": "\n"}
        found = diagnose(MachineCapture({name: text.encode() for name, text in files.items()}))
        return found.first.id if found.first else ""

    root = "uid=0(root) gid=0(root) groups=0(root)"
    assert read(65534, root) == "permissions.group"
    assert read(65534, f"{root},65534(nogroup)") == ""  # --group-add keep-groups
    assert read(0, root) == ""
    assert read(65534, root, group=1) == "permissions.group"
    assert read(65534, f"{root},1(daemon)", group=1) == ""
    assert read(65534, root, group=1, mode="crw-rw----+") == ""  # an ACL may allow it


def test_card_that_kfd_refuses_need_not_be_listed() -> None:
    refused = "kfd kfd: skipped device 1002:699f, PCI rejects atomics\n"

    def read(**files: str) -> str:
        found = diagnose(MachineCapture({name.replace("_", "."): text.encode() for name, text in files.items()}))
        return found.first.id if found.first else ""

    assert read(kernel_log=refused) == "pci.atomics"
    navi = "03:00.0 VGA compatible controller [0300]: AMD/ATI X [1002:744c]\n\tKernel driver in use: amdgpu\n"
    assert read(kernel_log=refused, lspci_txt=navi) == ""
    assert read(kernel_log="[drm] PCIE atomic ops is not supported\n") == ""


def test_flood_of_interrupts_is_named_by_its_repetition() -> None:
    line = f"amdgpu {GPU}: amdgpu: KFD node 0 ih_fifo overflow\n"
    diagnosis = diagnose(MachineCapture({"kernel.log": (line * 3).encode()}))
    assert diagnosis.first and "more interrupts" in diagnosis.first.title
    assert diagnose(MachineCapture({"kernel.log": line.encode()})).first is None


@pytest.mark.parametrize(
    ("rings", "named"),
    [
        (["gfx"] * 3, True),
        (["gfx", "sdma0", "gfx", "sdma0"], False),  # two of each: a busy machine has as many
        (["gfx", "sdma0", "gfx", "sdma0", "comp_1.0.0"], True),
    ],
)
def test_lost_interrupts_are_named_by_number_or_on_one_ring(rings: list[str], named: bool) -> None:
    lines = [f"amdgpu {GPU}: amdgpu: Fence fallback timer expired on ring {ring}" for ring in rings]
    assert ("log.interrupts" in {finding.id for finding in make_sick(log="\n".join(lines)).findings}) is named


def test_finished_device_is_a_failed_start_only_after_an_error() -> None:
    ends = f"amdgpu {GPU}: amdgpu: amdgpu: finishing device.\n"
    assert "log.init-failed" not in {finding.id for finding in make_sick(log=ends).findings}
    failed = f"amdgpu {GPU}: amdgpu: Fatal error during GPU init\n{ends}"
    assert "log.init-failed" in {finding.id for finding in make_sick(log=failed).findings}


def test_recovery_of_vram_is_a_reset_and_not_a_failure() -> None:
    recovery = f"amdgpu {GPU}: amdgpu: recover vram bo from shadow start\n"
    found = {finding.id for finding in make_sick(log=recovery).findings}
    assert "log.reset" in found and "log.reset-failed" not in found
    failed = f"{recovery}amdgpu {GPU}: amdgpu: recover vram bo from shadow failed, r=-110, tmo=0\n"
    assert "log.reset-failed" in {finding.id for finding in make_sick(log=failed).findings}
