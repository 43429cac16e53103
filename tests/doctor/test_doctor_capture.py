"""A capture goes to a folder and comes back; what is no capture is refused in one sentence."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import zipfile
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import sick_machines as corpus

from zinc_rt.doctor import gather, sources
from zinc_rt.doctor.capture import INDEX, MachineCapture, capture, unpack_capture
from zinc_rt.doctor.reading import CUT, read_bounded
from zinc_rt.host.errors import InputError, OutputError


def test_capture_round_trips(tmp_path: Path) -> None:
    files = corpus.load_base("two-r9700").files
    MachineCapture(files, {"firmware.txt": "debugfs requires root"}).write(tmp_path / "out")
    second = MachineCapture.read(tmp_path / "out")
    assert dict(second.files) == dict(files)
    assert second.unreadable == {"firmware.txt": "debugfs requires root"}


@pytest.mark.parametrize("kind", ["gz", "xz", "zip"])
def test_archive_is_read_in_place(kind: str, tmp_path: Path) -> None:
    files = {**corpus.load_base("vm").files, INDEX: b'{"schema": "zinc-rt-capture/1", "unreadable": {"a": "b"}}'}
    path = tmp_path / f"bundle.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for name, data in files.items():
                zipped.writestr(f"bundle/machine/{name}", data)
    else:
        with tarfile.open(path, f"w:{kind}") as tar:  # type: ignore[call-overload]
            for name, data in files.items():
                info = tarfile.TarInfo(f"bundle/machine/{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    result = unpack_capture(path)
    assert result.unreadable == {"a": "b"}
    assert dict(result.files) == dict(corpus.load_base("vm").files)


def test_truncated_archive_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "cut.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("proc/version")
        info.size = 100_000
        tar.addfile(info, io.BytesIO(os.urandom(100_000)))
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match="damaged or truncated"):
        unpack_capture(path)


@pytest.mark.parametrize("content", [b"", b"just words\n" * 100])
def test_non_archive_file_is_rejected_with_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError) as refused:
        unpack_capture(tmp_path / "x")
    assert str(refused.value).count("\n") == 1


def test_archive_with_other_content_is_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr("photo.jpg", b"x")
    with pytest.raises(InputError, match="not a capture of a machine"):
        unpack_capture(tmp_path / "x.zip")


def test_missing_folder_file_and_empty_folder_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        MachineCapture.read(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="a file, expected the folder"):
        MachineCapture.read(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: not a capture \(no proc/, sys/, "):
        MachineCapture.read(tmp_path / "empty")


@pytest.mark.parametrize(
    ("index", "message"), [("{", "not JSON"), ('{"schema": "zinc-rt-capture/9"}', "schema"), ("[]", "schema")]
)
def test_invalid_index_is_rejected(index: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "kernel.log").write_text("x\n")
    (tmp_path / INDEX).write_text(index)
    with pytest.raises(InputError, match=message):
        MachineCapture.read(tmp_path)


def test_links_in_foreign_capture_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kernel.log").write_text("x\n")
    (tmp_path / "id.txt").symlink_to("/etc/passwd")
    result = MachineCapture.read(tmp_path)
    assert "id.txt" not in result.files and result.unreadable["id.txt"] == "a link, not followed"


def test_path_outside_the_folder_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="not a path inside"):
        MachineCapture({"../escape": b""}).write(tmp_path / "out")
    assert not (tmp_path / "escape").exists()


def test_long_file_keeps_its_head_and_tail(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"first" + bytes(1000) + b"last")
    data = read_bounded(path, 100)
    assert data.startswith(b"first") and data.endswith(b"last") and CUT in data


def create_sysfs(root: Path, status: str = "active") -> Path:
    """A GPU behind a bridge, with the links of a real sysfs."""
    gpu = root / "sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0"
    for path, text in {
        gpu / "vendor": "0x1002\n",
        gpu / "device": "0x7551\n",
        gpu / "uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n",
        gpu / "current_link_width": "16\n",
        gpu / "max_link_width": "16\n",
        gpu / "power/runtime_status": f"{status}\n",
        gpu / "hwmon/hwmon3/temp1_input": "40000\n",
        gpu / "fw_version/mes_fw_version": "0x00001086\n",
        gpu.parent / "current_link_width": "4\n",
        gpu.parent / "max_link_width": "16\n",
        root / "proc/version": "Linux version 7.0.0-31-generic (b@h)\n",
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("card1", "renderD128"):
        (gpu / "drm" / name).mkdir(parents=True)
        (gpu / "drm" / name / "device").symlink_to("../..")
    drm = root / "sys/class/drm"
    drm.mkdir(parents=True)
    for name in ("card1", "renderD128"):
        (drm / name).symlink_to(f"../../devices/pci0000:00/0000:00:01.1/0000:03:00.0/drm/{name}")
    return gpu


def test_machine_is_captured_through_sysfs_links(tmp_path: Path) -> None:
    create_sysfs(tmp_path)
    result = capture(tmp_path)
    assert result.line("sys/class/drm/card1/device/device") == "0x7551"
    assert result.line("sys/class/drm/card1/device/hwmon/hwmon3/temp1_input") == "40000"
    assert result.line("sys/devices/pci0000:00/0000:00:01.1/current_link_width") == "4"
    assert json.loads(json.dumps(dict(result.unreadable))) == {}
    result.write(tmp_path / "out")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_symlink()]


def test_slow_upstream_link_and_firmware_are_read_without_root(tmp_path: Path) -> None:
    from zinc_rt.doctor.diagnose import diagnose

    create_sysfs(tmp_path)
    diagnosis = diagnose(capture(tmp_path))
    assert diagnosis.first is not None and diagnosis.first.id == "pci.link-width"
    assert "0000:00:01.1" in diagnosis.first.title
    assert diagnosis.machine.gpus[0].firmware == {"MES": 0x86}


def test_gpu_without_driver_is_found_on_the_bus(tmp_path: Path) -> None:
    """No DRM device, no lspci: what is left of a GPU whose module was kept out."""
    from zinc_rt.doctor.diagnose import diagnose

    function = tmp_path / "sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0"
    function.mkdir(parents=True)
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / "0000:03:00.0").symlink_to("../../../devices/pci0000:00/0000:00:01.1/0000:03:00.0")
    for name, text in {
        "vendor": "0x1002",
        "device": "0x7551",
        "class": "0x030000",
        "uevent": "PCI_ID=1002:7551",
    }.items():
        (function / name).write_text(f"{text}\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text("root=x nomodeset\n")
    diagnosis = diagnose(capture(tmp_path))
    assert [gpu.address for gpu in diagnosis.machine.gpus] == ["0000:03:00.0"]
    assert diagnosis.first is not None and diagnosis.first.id == "module.blacklisted"


def test_machine_without_amd_gpu_gets_no_faults(tmp_path: Path) -> None:
    from zinc_rt.doctor.diagnose import diagnose

    files = {
        "sys/bus/pci/devices/0000:00:02.0/vendor": b"0x8086\n",
        "sys/bus/pci/devices/0000:00:02.0/class": b"0x030000\n",
        "proc/cmdline": b"root=x nomodeset modprobe.blacklist=amdgpu\n",
        "id.txt": b"uid=1000(u) gid=1000(u) groups=1000(u)\n",
        "etc/os-release": b"ID=debian\n",
    }
    diagnosis = diagnose(MachineCapture(files))
    assert [finding.id for finding in diagnosis.findings] == ["gpu.none"] and diagnosis.exit_code() == 77


def test_suspended_gpu_is_not_queried(tmp_path: Path) -> None:
    create_sysfs(tmp_path, status="suspended")
    result = capture(tmp_path)
    assert "sys/class/drm/card1/device/hwmon/hwmon3/temp1_input" not in result.files
    assert result.unreadable["sys/class/drm/card1/device/hwmon"] == gather.ASLEEP


def test_unresponsive_gpu_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO blocks its reader as the sensors of a hung SMU do."""
    gpu = create_sysfs(tmp_path)
    (gpu / "hwmon/hwmon3/temp1_input").unlink()
    os.mkfifo(gpu / "hwmon/hwmon3/temp1_input")
    monkeypatch.setattr(gather, "PATIENCE_SECONDS", 0.05)
    result = capture(tmp_path)
    assert "no reply" in result.unreadable["sys/class/drm/card1/device/hwmon"]
    (gpu / "hwmon/hwmon3/temp1_input").open("w").close()  # lets the reader go


def test_unreadable_files_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zinc_rt.doctor import reading

    def refuse_read(path: Path, most_bytes: int = 0) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    create_sysfs(tmp_path)
    monkeypatch.setattr(reading, "read_bounded", refuse_read)
    result = capture(tmp_path)
    assert result.unreadable["proc/version"] == "Permission denied" and not result.files.get("proc/version")


def test_grep_output_of_sysfs_is_read_as_its_files(tmp_path: Path) -> None:
    (tmp_path / "sysfs.txt").write_text(
        "/sys/bus/pci/devices/0000:03:00.0/vendor:0x1002\n"
        "/sys/class/drm/card0/device/uevent:DRIVER=amdgpu\n"
        "/sys/class/drm/card0/device/uevent:PCI_SLOT_NAME=0000:03:00.0\n"
        "/sys/devices/pci0000:00/0000:00:01.1/current_link_width:16\n"
        "/etc/../root/secret:x\n"
        "grep: /sys/x: Permission denied\n"
    )
    files = MachineCapture.read(tmp_path).files
    assert files["sys/bus/pci/devices/0000:03:00.0/vendor"] == b"0x1002\n"
    assert files["sys/class/drm/card0/device/uevent"] == b"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n"
    assert files["sys/devices/pci0000:00/0000:00:01.1/current_link_width"] == b"16\n"
    assert not [name for name in files if "secret" in name]


def expand_braces(word: str) -> list[str]:
    """Expand braces as bash does."""
    match = re.search(r"\{([^{}]*)\}", word)
    if not match:
        return [word]
    return [
        item
        for part in match[1].split(",")
        for item in expand_braces(word[: match.start()] + part + word[match.end() :])
    ]


def test_recipe_for_a_capture_by_hand_names_every_file_that_rules_read() -> None:
    blocks = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8").split("```")
    recipe = next(block for block in blocks if "mkdir -p cap" in block)
    patterns = [item for word in recipe.split() if "/" in word for item in expand_braces(word)]
    of = {"$P": sources.FUNCTION, "$D": (*sources.REMEMBERED, *sources.ASKED)}
    unread = {"revision", "class", "subsystem_vendor", "subsystem_device", "numa_node", "d3cold_allowed", "enable"}
    unread |= {
        "reset_method",
        *(name for name in sources.FUNCTION if name.startswith(("link/", "power/runtime_"))),
    }
    unread -= {"power/runtime_status"}
    for folder, names in of.items():
        own = [pattern.removeprefix(f"{folder}/") for pattern in patterns if pattern.startswith(f"{folder}/")]
        missing = [
            name for name in names if name not in unread and not any(fnmatchcase(name, item) for item in own)
        ]
        assert not missing, folder
