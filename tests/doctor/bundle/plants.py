"""Secrets of every kind, and files of every kind a bundle has, to plant them in."""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable

SEED = 11
COUNT = 12  # rounds: every kind is in a round three times or more
HOSTS = ("gandalf", "workbench", "tower", "lab", "rig", "node", "station", "mothership")
USERS = ("alice", "bob", "mallory", "jürgen", "zoe", "piotr", "haruka", "oluwaseun")


class SecretPlants:
    """Random values, the same for a seed; `said` contains the values of each kind, none of which may occur in the
    output.
    """

    def __init__(self, seed: int = SEED) -> None:
        self.random = random.Random(seed)
        self.said: dict[str, list[str]] = {}

    def record(self, kind: str, value: str) -> str:
        self.said.setdefault(kind, []).append(value)
        return value

    def random_hex(self, digits: int) -> str:
        return "".join(self.random.choice("0123456789abcdef") for _ in range(digits))

    def random_word(self, length: int = 8) -> str:
        return "".join(self.random.choice(string.ascii_lowercase) for _ in range(length))

    def serial(self) -> str:
        text = "".join(self.random.choice(string.ascii_uppercase + string.digits) for _ in range(11))
        return self.record("serial", f"{text}7")

    def card(self) -> str:
        return self.record("card", self.random_hex(15) + "7")

    def host(self) -> str:
        return self.record(
            "host", f"{self.random.choice(HOSTS)}-{self.random_word(4)}{self.random.randrange(100)}"
        )

    def user(self) -> str:
        return self.record("user", f"{self.random.choice(USERS)}{self.random_word(3)}")

    def path(self) -> str:
        return self.record("path", f"{self.random_word(6)}-project/{self.random_word()}")

    def mac(self) -> str:
        return self.record("mac", ":".join(self.random_hex(2) for _ in range(6)))

    def ipv4(self) -> str:
        octets = [self.random.choice((10, 172, 192, 84, 203)), *(self.random.randrange(2, 250) for _ in range(3))]
        return self.record("ip", ".".join(map(str, octets)))

    def ipv6(self) -> str:
        return self.record("ip", f"2001:db8:{self.random_hex(4)}:{self.random_hex(4)}::1{self.random_hex(3)}")

    def uuid(self) -> str:
        return self.record("uuid", str(uuid.UUID(int=self.random.getrandbits(128), version=4)))

    def machine_id(self) -> str:
        return self.record("uuid", self.random_hex(31) + "a")

    def mail(self) -> str:
        return self.record(
            "mail",
            f"{self.random_word()}.{self.random_word(5)}@{self.random_word()}."
            f"{self.random.choice(('com', 'org', 'de'))}",
        )

    def base64(self, size: int) -> str:
        return base64.b64encode(self.random.randbytes(size)).decode()

    def public_key(self) -> str:
        body = "AAAAC3NzaC1lZDI1NTE5AAAAI" + self.base64(32)
        self.record("key", body)
        return f"ssh-ed25519 {body}"

    def private_key(self) -> str:
        lines = [self.record("key", self.base64(48)) for _ in range(4)]
        return "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----"])

    def password(self) -> str:
        return self.record("token", f"{self.random_word(6)}!{self.random_hex(6)}Q")


Line = Callable[[SecretPlants], str]

# Each kind in the forms that logs, files of /sys and reports have.
LINES: tuple[Line, ...] = (
    lambda p: f"[    1.234567] DMI: board serial: {p.serial()}",
    lambda p: f"[    2.000001] usb 1-2: SerialNumber: {p.serial()}",
    lambda p: f"\t\t[SN] Serial number: {p.serial()}",
    lambda p: f"E: ID_SERIAL_SHORT={p.serial()}",
    lambda p: f"S/N: {p.serial()}",
    lambda p: f"nvme0: subsystem serial {p.serial()} found",
    lambda p: f"nvme nvme0: serial={p.serial()} model=X",
    lambda p: f"amdgpu 0000:03:00.0: amdgpu: unique_id: {p.card()}",
    lambda p: f"unique_id {int(p.card(), 16)}",
    lambda p: f"unique_id=0x{p.card()}",
    lambda p: f"Nov 22 14:11:09 {p.host()} kernel: amdgpu: ring gfx timeout",
    lambda p: f"2026-11-22T14:11:09.123456+00:00 {p.host()} systemd[1]: Started x.",
    lambda p: f"systemd[1]: Hostname set to <{p.host()}>.",
    lambda p: f"Linux {p.host()} 6.14.0-33-generic #33 SMP x86_64 GNU/Linux",
    lambda p: f"NetworkManager: hostname: {p.host()}",
    lambda p: f"Connection to {p.host()}.acme-works.com closed; tried {p.host()}.it.acme.de",
    lambda p: f"GET /load?file=%2Fhome%2F{p.user()}%2F{p.path().replace('/', '%2F')} 200",
    lambda p: f'{{"log": "up\\n{p.ipv4()} is {p.host()}.lan\\nUSER={p.user()}\\n{p.mac()}"}}',
    lambda p: f'GRUB_CMDLINE_LINUX_DEFAULT="quiet amdgpu.user_queue=1 vault={p.password()}"',
    lambda p: f"options root=UUID={p.uuid()} rw key={p.password()}",
    lambda p: f"0::/system.slice/docker-{p.record('uuid', p.random_hex(63) + 'a')}.scope",
    lambda p: f"mount: {p.host()}.corp:/export/models on /models type nfs",
    lambda p: f"fetching http://{p.host()}:8080/models/x.gguf",
    lambda p: f"{p.user()}@{p.host()}:~$ zinc-rt pm4-test",
    lambda p: f"sshd[77]: Accepted publickey for {p.user()} from {p.ipv4()} port 50222 ssh2",
    lambda p: f"uid=1000({p.user()}) gid=1000(people) groups=1000(people),44(video),992(render)",
    lambda p: f"session opened for user {p.user()} by (uid=0)",
    lambda p: f"USER={p.user()} LOGNAME={p.user()}",
    lambda p: f'File "/home/{p.user()}/{p.path()}/run.py", line 3, in main',
    lambda p: f"--model /home/{p.user()}/{p.path()}.gguf --tokens 1,2,3",
    lambda p: f"C:\\Users\\{p.user()}\\Documents",
    lambda p: f"cannot read /root/{p.path()}: Permission denied",
    lambda p: f"model /mnt/{p.path()}.gguf is 4.1 GB",
    lambda p: f"cd ~/{p.path()}",
    lambda p: f"igc 0000:0a:00.0 eth0: MAC: {p.mac()}",
    lambda p: f"link/ether {p.mac().upper()} brd ff:ff:ff:ff:ff:ff",
    lambda p: f"wlp3s0: authenticate with {p.mac()}",
    lambda p: f"enp5s0: renamed from eth0 ({p.mac().replace(':', '-')})",
    lambda p: f"inet {p.ipv4()}/24 brd 255.255.255.255 scope global",
    lambda p: f"inet6 {p.ipv6()}/64 scope global",
    lambda p: f"connect to {p.ipv4()}:9000 failed, [{p.ipv6()}]:9000 too",
    lambda p: f"netconsole: remote ip {p.ipv4()}",
    lambda p: f"EXT4-fs (nvme0n1p2): mounted filesystem {p.uuid()} r/w",
    lambda p: f"root=UUID={p.uuid()} ro quiet",
    lambda p: f"boot_id {p.machine_id()}",
    lambda p: f"systemd-journald[1]: machine {p.machine_id()} started",
    lambda p: f"Reported-by: somebody <{p.mail()}>",
    lambda p: f"git config user.email {p.mail()}",
    lambda p: f"authorized: {p.public_key()} {p.mail()}",
    lambda p: p.private_key(),
    lambda p: (
        f"Kernel command line: BOOT_IMAGE=/vmlinuz-6.14 amdgpu.user_queue=1 rd.luks.key={p.password()} quiet"
    ),
    lambda p: f"Command line: ro systemd.set_credential=wifi:{p.password()} iommu=pt ip={p.ipv4()}::{p.ipv4()}",
    lambda p: (
        f'Unknown kernel command line parameters "splash vault={p.password()}", will be passed to user space.'
    ),
    lambda p: f"export HF_TOKEN=hf_{p.record('token', p.random_word(30))}",
    lambda p: f"password: {p.password()}",
)


def plant_secrets(plants: SecretPlants, count: int = COUNT) -> dict[str, bytes]:
    """Files as in a bundle, with `count` copies of every line spread over all files."""
    rounds = ["\n".join(line(plants) for line in LINES) for _ in range(count)]
    text = "\n".join(rounds) + "\n"
    third = len(rounds) // 4
    parts = ["\n".join(rounds[index : index + third]) + "\n" for index in range(0, len(rounds), third)]
    report = {
        "schema": "zinc-rt-report/1",
        "device": {"unique_id": plants.card(), "hostname": plants.host(), "name": "AMD Radeon AI PRO R9700"},
        "model": {"path": f"/home/{plants.user()}/{plants.path()}/qwen3.gguf"},
        "results": [{"id": "P20/t1", "status": "fail", "reason": parts[0], "first_bad": {"report": parts[1]}}],
        "details": {"kernel_log": parts[2].splitlines(), "serial_number": plants.serial(), "user": plants.user()},
        f"/home/{plants.user()}/{plants.path()}": 1,
        "unique_id": int(plants.card(), 16),
        "mac": plants.mac(),
        "nested": json.dumps({"host": f"http://{plants.host()}/", "text": parts[3][:4000]}),
    }
    journal = "".join(
        json.dumps({"what": "begin", "probe": "P20", "boot": plants.uuid()}) + "\n" for _ in range(COUNT)
    )
    line = f"BOOT_IMAGE=/vmlinuz root=UUID={plants.uuid()} ro amdgpu.user_queue=1 luks.key={plants.password()}\n"
    binary = b"\0\1\2" + bytes(range(256)) + parts[1].encode() + b"\0" * 64 + parts[2].encode() + b"\xff\xfe\0"
    secret_host = plants.host()
    return {
        "machine/kernel.log": text.encode(),
        "machine/proc/cmdline": line.encode(),
        "machine/sys/class/dmi/id/product_serial": plants.serial().encode() + b"\n",
        "machine/sys/class/dmi/id/product_uuid": plants.uuid().encode(),
        "machine/sys/class/drm/card0/device/unique_id": plants.card().encode() + b"\n",
        "machine/sys/class/net/eth0/address": plants.mac().encode(),
        "machine/etc/hostname": secret_host.encode() + b"\n",
        "machine/etc/machine-id": plants.machine_id().encode(),
        "machine/id.txt": f"uid=1000({plants.user()}) gid=1000(people) groups=44(video)\n".encode(),
        "machine/packages.txt": f"mesa-vulkan-drivers 25.0.7-0ubuntu0.24.04.2\nhost-of {secret_host}\n".encode(),
        f"logs/{secret_host}.log": (parts[0] + f"\nbare mention of {secret_host} here\n").encode(),
        "reports/pm4-test.json": json.dumps(report).encode(),
        "reports/damaged.json": json.dumps(report).encode()[:-20],
        "logs/pm4-test.journal": journal.encode(),
        "hangs/P20-t1/ring.bin": binary,
        "hangs/P20-t1/report.txt": parts[1].encode() + b"\xff\xfe latin \xe9\n",
    }


# What must still be there: a bundle without it is of no use.
KEPT = (
    "amdgpu.user_queue=1", "iommu=pt", "ring gfx timeout", "25.0.7-0ubuntu0.24.04.2", "6.14.0-33-generic",
    "0000:03:00.0", "AMD Radeon AI PRO R9700", "P20/t1", ".gguf", "255.255.255.255", "groups=",
)  # fmt: skip
