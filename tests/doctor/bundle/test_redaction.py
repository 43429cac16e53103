"""Nothing private is left in what is sent away, and what remains can still be read."""

from __future__ import annotations

import json
import re

import pytest
from plants import KEPT, SecretPlants, plant_secrets

from zinc_rt.doctor.bundle.redact import Redactor

KINDS = ("serial", "card", "host", "user", "path", "mac", "ip", "uuid", "mail", "key", "token")


@pytest.fixture(scope="module")
def secret_plants() -> SecretPlants:
    return SecretPlants()


@pytest.fixture(scope="module")
def planted_files(secret_plants: SecretPlants) -> dict[str, bytes]:
    return plant_secrets(secret_plants)


@pytest.fixture(scope="module")
def redacted_files(planted_files: dict[str, bytes]) -> dict[str, bytes]:
    result, left_out = Redactor().redact_files(planted_files)
    assert not left_out
    return result


def files_with_secret(secret: str, files: dict[str, bytes]) -> list[str]:
    """Return the files that still contain it, in any notation."""
    forms = {secret, secret.lower(), secret.upper(), secret.replace(":", "-"), secret.replace(":", "")}
    forms |= {secret.encode("unicode_escape").decode(), secret.replace("/", "%2F")}
    if re.fullmatch(r"[0-9a-f]{16}", secret):
        forms.add(str(int(secret, 16)))
    return [
        name
        for name, content in files.items()
        for form in forms
        if form.encode() in content or form in name or form.encode("utf-16-le") in content
    ]


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize("kind", KINDS)
def test_planted_secrets_of_every_kind_are_redacted(
    kind: str, secret_plants: SecretPlants, planted_files: dict[str, bytes], redacted_files: dict[str, bytes]
) -> None:
    secrets = set(secret_plants.said[kind])
    assert len(secrets) >= 30
    assert all(files_with_secret(secret, planted_files) for secret in sorted(secrets)[:5]), "they were there"
    left = {secret: places for secret in secrets if (places := files_with_secret(secret, redacted_files))}
    assert not left, f"{len(left)} of {len(secrets)}: {dict(list(left.items())[:3])}"


def test_diagnostic_content_is_preserved(redacted_files: dict[str, bytes]) -> None:
    everything = b"\n".join(redacted_files.values())
    assert not [text for text in KEPT if text.encode() not in everything]


def redact_text(text: str, name: str = "logs/x.log") -> str:
    return Redactor().redact_files({name: text.encode()})[0][name].decode()


def test_same_value_gets_same_placeholder_in_every_file_and_spelling() -> None:
    result, _ = Redactor().redact_files(
        {
            "a.log": b"link/ether 3C:7C:3F:11:22:33\nHostname set to <tower7>.\nuid=1000(alice)\n",
            "b.json": b'{"mac": "3c-7c-3f-11-22-33", "text": "on TOWER7 by Alice", "other": "9c:00:00:11:22:33"}',
            "c.txt": b"/home/alice/x/y.gguf and /home/alice/x/y.gguf\n"
            b"unique_id: 68a29a0d347301e7\nunique_id 7539758107676836327\n",
        }
    )
    assert result["a.log"].decode().split() == [
        "link/ether",
        "<mac-1>",
        "Hostname",
        "set",
        "to",
        "<<host-1>>.",
        "uid=1000(<user-1>)",
    ]
    assert (
        b"<mac-1>" in result["b.json"]
        and b"on <host-1> by <user-1>" in result["b.json"]
        and b"<mac-2>" in result["b.json"]
    )
    first, second, *ids = result["c.txt"].decode().replace(" and ", "\n").splitlines()
    assert first == second == "/home/<user-1>/<path-1>.gguf"
    assert [line.split()[-1] for line in ids] == ["<card-1>", "<card-1>"]


@pytest.mark.parametrize(
    "text",
    [
        "amdgpu 0000:03:00.0: [drm] ring comp_1.0.0 timeout, signaled seq=5, emitted seq=6",
        "smu fw program = 0, version = 0x00684500 (104.69.0)",
        "VBIOS version: 113-D7070100-128, xxh 022.001.002.021.000001",
        "firmware version: 0x00000b22, feature 35; sha256 " + "ab" * 32,
        "user queues are off: amdgpu.user_queue=-1; host probes touch no GPU",
        "serial console ttyS0, 8250 driver; Serial: 8250/16550 driver, 32 ports",
        "24 tokens in 0.24 s; max_abs_diff 1e-3; seq 1:2:3; 14:11:09",
        "see https://gitlab.freedesktop.org/drm/amd/-/issues/4321 and https://github.com/ROCm/ROCm/issues/6165",
        "inet 127.0.0.1/8 255.255.255.0 getty@tty1.service user@1000.service std::vector::size",
        "mesa-vulkan-drivers 25.0.7-0ubuntu0.24.04.2\nlibdrm-amdgpu1 2.4.122-1~ubuntu0.24.04.1\nlinux 6.8.0.31.31",
        "zinc-rt-pm4-test --device sim -k P20 --tiers t2 --inject no-eop; ~/.local/state/zinc-rt/pm4-test.journal",
        "libdrm.so.2 kernel.org amdgpu.dc=1 zinc_rt.doctor.bundle.format os.path v1.2 drm_dp_helper.c:12",
        "node 0x7f3a2c001000 -> t1:gfx1201 at c0ffee00c0ffee00",
    ],
)
def test_text_similar_to_secrets_is_preserved(text: str) -> None:
    assert redact_text(text) == text


def test_kernel_command_line_keeps_only_known_parameters() -> None:
    line = (
        "BOOT_IMAGE=/vmlinuz-6.14 root=/dev/mapper/vg-private ro quiet amdgpu.ppfeaturemask=0xffffffff iommu=pt "
        "pcie_aspm=off cryptdevice=/dev/sda2:vault rd.luks.key=hunter2 bareword nomodeset amdgpu.user_queue=1"
    )
    assert redact_text(line, "machine/proc/cmdline") == (
        "BOOT_IMAGE=/vmlinuz-6.14 root=<token-1> ro quiet amdgpu.ppfeaturemask=0xffffffff iommu=pt "
        "pcie_aspm=off cryptdevice=<token-2> rd.luks.key=<token-3> <token-4> nomodeset amdgpu.user_queue=1\n"
    )


def test_redaction_is_idempotent(redacted_files: dict[str, bytes]) -> None:
    texts = {name: content for name, content in redacted_files.items() if b"\0" not in content}
    assert Redactor().redact_files(texts)[0] == texts


def test_binary_file_keeps_length_and_offsets(
    planted_files: dict[str, bytes], redacted_files: dict[str, bytes]
) -> None:
    before, after = planted_files["hangs/P20-t1/ring.bin"], redacted_files["hangs/P20-t1/ring.bin"]
    assert len(before) == len(after) and before[:259] == after[:259] and after.endswith(b"\xff\xfe\0")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("machine/sys/class/drm/card0-DP-1/edid", b"\0\xff\xff"),
        ("logs/messages.gz", b"\x1f\x8b\x08"),
        ("a/.env", b"TOKEN=1"),
        ("x/id_ed25519", b"-----"),
    ],
)
def test_unscannable_files_are_excluded(name: str, content: bytes) -> None:
    result, left_out = Redactor().redact_files({name: content})
    assert not result and left_out[name]


def test_name_after_escaped_newline_is_redacted() -> None:
    text = r'"uid=1000(alice)\nalice said\talice: C:\Users\tom\x" tom'
    assert (
        redact_text(text) == r'"uid=1000(<user-1>)\n<user-1> said\t<user-1>: C:\Users\<user-2>\<path-1>" <user-2>'
    )


def test_known_names_are_redacted_everywhere() -> None:
    result, _ = Redactor(known={"host": ["pc"], "user": ["max"]}).redact_files(
        {"x.log": b"PC is up; max_link_speed is for max, spaceport pc-3 maximal\n"}
    )
    assert result["x.log"] == b"<host-1> is up; max_link_speed is for <user-1>, spaceport pc-3 maximal\n"


# Lines of a kernel log or journal with something private in them ({}), by kind.
KERNEL_LINES = {
    "disk model and label": "EXT4-fs (dm-3): mounted filesystem {} r/w with ordered data mode",
    "volume of LVM": "device-mapper: ioctl: vg_{}-lv_home created",
    "volume by mapper": "amdgpu 0000:03:00.0: firmware read from /dev/mapper/{}",
    "pool": "ZFS: Loaded pool '{}' from cache",
    "btrfs label": "BTRFS info (device nvme0n1p3): label {} devid 1 transid 100",
    "USB product": "usb 1-4: Product: {} Keyboard",
    "USB serial": "usb 1-4: SerialNumber: {}",
    "network bridge": "br-{}: port 1(veth77) entered blocking state",
    "network interface of a container": "veth{}: renamed from eth0",
    "wireless network": "wlan0: associated with {}",
    "wireguard peer": "wireguard: wg0: Handshake for peer 3 ({}:51820) did not complete",
    "bluetooth name": "input: {}'s headphones (AVRCP) as /devices/virtual/input/input30",
    "NFS server": "NFS: server {} not responding, still trying",
    "CIFS share": "CIFS: Attempting to mount \\\\{}\\share",
    "firewall": "[UFW BLOCK] IN=enp5s0 OUT= MAC= SRC={} DST=10.0.0.1",
    "audit user": "audit: type=1112 audit(1.1:1): pid=1 uid=0 msg='op=login acct=\"{}\"'",
    "AppArmor profile": 'audit: type=1400 apparmor="DENIED" operation="open" profile="snap.{}.app"',
    "systemd unit": "systemd[1]: Started {}.service - private service.",
    "systemd home": "systemd[1]: Mounting /home/{}...",
    "process of a hang": "amdgpu: Process information: process {} pid 4711 thread {} pid 4712",
    "process of a hang since 6.15": "amdgpu 0000:03:00.0: amdgpu:  Process {} pid 4711 thread {}:cs0 pid 4712",
    "process of a page fault": "amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 for process {} pid 1)",
    "process without memory": "{} invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0",
    "process killed": "Out of memory: Killed process 4711 ({}) total-vm:1kB, anon-rss:1kB",
    "cgroup": "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a.slice/{},task_memcg=/x/{},task=python3,pid=1",
    "task of a cgroup": "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task={},pid=4711,uid=1000",
    "blocked task": "INFO: task {}:4711 blocked for more than 122 seconds. amdgpu",
    "segmentation fault": "{}[4711]: segfault at 0 ip 00 sp 00 error 4 in libamdgpu.so",
    "Comm of a trace": "CPU: 3 PID: 4711 Comm: {} Tainted: G OE amdgpu",
    "container of Docker": "amdgpu: evicting memory of container name={}",
    "container of LXC": "amdgpu: cgroup /lxc/{} has no device access",
    "virtual machine": "kvm: {}: guest has set up MSR",
    "module parameter": "private_module: key={}",
    "boot parameter": "Kernel command line: ro vault={} quiet",
    "EUI-64": "amdgpu: peer at {} disconnected",
    "hostname": "amdgpu: netconsole to {}.lan",
    "mail": "amdgpu: report this to {}@example.org",
    "path": "amdgpu: loading /home/u/{}.bin failed",
    "UUID": "PM: Image device {} not found",
    "unique id": "amdgpu: unique_id: {}",
    "serial": "pci 0000:00:01.0: serial number: {}",
    "InfiniBand port": "PM: mlx5 hwaddr {}",
}
SPECIAL = {
    "EUI-64": "3c:7c:3f:ff:fe:11:22:33",
    "UUID": "0a1b2c3d-1111-4222-8333-0123456789ab",
    "unique id": "68a29a0d347301e7",
    "wireguard peer": "203.0.113.77",
    "InfiniBand port": "80:00:02:08:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:b5:d2:f6",
}


@pytest.mark.parametrize("prefix", ["[   12.345678] ", "Nov 22 14:11:09 pc7 kernel: ", "6,123,456789,-;"])
def test_redacted_kernel_log_contains_no_private_data(prefix: str) -> None:
    assert len(KERNEL_LINES) >= 40
    secrets = {kind: SPECIAL.get(kind, f"zq{index}secretxv") for index, kind in enumerate(KERNEL_LINES)}
    lines = [
        (prefix if not line.startswith("systemd") else "Nov 22 14:11:09 pc7 ") + line.replace("{}", secrets[kind])
        for kind, line in KERNEL_LINES.items()
    ]
    log = "\n".join(["[    0.000000] Linux version 6.17.0", *lines, prefix + "amdgpu: ring gfx timeout", ""])
    report = json.dumps({"details": {"kernel_log": lines}, "text": log})
    files = {"machine/kernel.log": log, "logs/run.log": f"step 1 of 2\n{log}", "reports/r.json": report}
    redacted, left_out = Redactor().redact_files({name: text.encode() for name, text in files.items()})
    assert not left_out
    texts = {name: content.decode() for name, content in redacted.items()}
    leaks = {(name, kind) for name, text in texts.items() for kind, secret in secrets.items() if secret in text}
    assert not leaks
    for text in texts.values():
        assert "ring gfx timeout" in text and "lines of other subsystems" in text and "Killed process" in text
    assert "step 1 of 2" in texts["logs/run.log"]


def test_call_trace_is_kept_with_the_line_before_it() -> None:
    trace = (
        "------------[ cut here ]------------\n"
        "WARNING: CPU: 5 PID: 88 at drivers/gpu/drm/amd/amdgpu/amdgpu_irq.c:630\n"
        "Call Trace:\n <TASK>\n amdgpu_irq_put+0x46/0x70 [amdgpu]\n ? private_call+0x1/0x2 [private]\n </TASK>\n"
    )
    other = "WARNING: at drivers/net/private.c:7\nCall Trace:\n private_call+0x1/0x2 [private]\nprivate0: up\n"
    assert redact_text(trace + other, "machine/kernel.log") == (
        trace + "(lines of other subsystems that were removed: 4)\n"
    )


def test_package_and_group_names_of_manual_captures_are_removed() -> None:
    packages = b"ii  acme-agent 1.2 all\nii  linux-firmware 20250901 all\nacme-agent-1.2-3.x86_64\nmesa 25.2.1-1\n"
    groups = b"uid=1007(matilda) gid=1007(matilda) groups=1007(matilda),44(video),5001(falconteam),27(sudo)\n"
    redacted, _ = Redactor().redact_files({"machine/packages.txt": packages, "machine/id.txt": groups})
    assert redacted["machine/packages.txt"] == b"ii  linux-firmware 20250901 all\nmesa 25.2.1-1\n"
    text = redacted["machine/id.txt"].decode()
    assert "falconteam" not in text and "matilda" not in text and "44(video)" in text and "27(sudo)" in text
