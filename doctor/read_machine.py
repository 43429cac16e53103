"""Convert a MachineCapture to an InspectedMachine. Nothing raises: values that cannot be parsed are
unknown."""

from __future__ import annotations

import re

from zinc_rt.doctor import lspci
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.doctor.captured_sysfs import is_permission_error, read_captured_topology
from zinc_rt.doctor.logs import LinuxLog, parse_log
from zinc_rt.doctor.machine import (
    DeviceNode,
    HostSystem,
    InspectedGpu,
    InspectedMachine,
    LinuxKernel,
    Module,
    User,
    Version,
)
from zinc_rt.doctor.read_gpus import read_gpus

_NODE = re.compile(r"^(c[rwxsStT-]{9})([+.@]?)\s+\d+\s+(\S+)\s+(\S+)\s+\d+,\s*\d+\s.*?(/dev/\S+)")
_CONTAINERS = (
    ("docker", r"docker|/\.dockerenv"), ("podman", r"libpod|podman|containerenv"), ("kubernetes", r"kubepods"),
    ("lxc", r"/lxc|lxc\.payload|machine\.slice/.*lxc"), ("containerd", r"containerd|cri-"),
    ("apptainer", r"apptainer|singularity"),
)  # fmt: skip
_HYPERVISORS = (
    "kvm",
    "qemu",
    "vmware",
    "virtualbox",
    "hyper-v",
    "virtual machine",
    "xen",
    "bochs",
    "parallels",
    "bhyve",
)


def read_machine(capture: MachineCapture) -> InspectedMachine:
    kfd_topology, problem = read_captured_topology(capture)
    linux = _read_linux_kernel(capture)
    known = read_gpus(capture, kfd_topology.gpus if kfd_topology else ())
    log_text = capture.text("kernel.log")
    bridges = _find_bridges(capture, known)
    log = parse_log(log_text, bridges) if log_text is not None and log_text.strip() else None
    drm = any(name.startswith(("sys/class/drm/", "sys/bus/pci/devices/")) for name in capture.files)
    return InspectedMachine(
        capture,
        linux,
        _read_module(capture, linux, known, log),
        _read_host(capture, linux, log),
        known,
        drm or bool((capture.text("lspci.txt") or "").strip()),
        None if kfd_topology is None and not problem else kfd_topology is not None,
        problem,
        _read_user(capture),
        _read_nodes(capture),
        _read_packages(capture),
        _find_unconfigured(capture),
        _read_users(capture),
        log,
    )


def _find_bridges(capture: MachineCapture, gpus: tuple[InspectedGpu, ...]) -> set[str]:
    """Return the addresses whose bus errors concern a GPU: its own and those of bridges above it."""
    listed = lspci.parse_lspci(capture.text("lspci.txt") or "")
    addresses = {link.address for gpu in gpus for link in gpu.links if link.address}
    addresses |= {gpu.address for gpu in gpus if gpu.address}
    addresses |= {
        bridge.address for gpu in gpus if gpu.address for bridge in lspci.find_bridge_chain(listed, gpu.address)
    }
    return addresses


def parse_version(text: str | None) -> Version | None:
    """Parse a version: (6, 17, 0) for `6.17.0-22-generic`, (20251125,) for `20251125-1.fc43`; an epoch
    before a colon is ignored."""
    matched = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", text or "")
    return tuple(int(part) for part in matched[1].split(".")) if matched else None


_DXG = re.compile(r"\bmisc dxg: |registering driver dxgkrnl")  # the GPU driver that only WSL has


def _read_linux_kernel(capture: MachineCapture) -> LinuxKernel:
    text = capture.line("proc/version") or ""
    matched = re.search(r"Linux version (\S+)", text)
    release = capture.line("proc/sys/kernel/osrelease") or (matched[1] if matched else None)
    if release is None:
        logged = re.search(r"Linux version (\S+)", capture.text("kernel.log") or "")
        release = logged[1] if logged else None
    line = capture.line("proc/cmdline")
    if line is None:
        logged = re.search(r"Command line: (.*)", capture.text("kernel.log") or "")
        line = logged[1] if logged else None
    config = next((capture.text(name) for name in sorted(capture.files) if name.startswith("boot/config")), None)
    if config is None:
        config = capture.text("proc/config") or capture.text("proc/config.txt")
    options = dict(re.findall(r"^(CONFIG_\w+)=(\S+)", config, re.M)) if config else None
    words = tuple(word.strip('"') for word in line.split()) if line is not None else None
    wsl = "microsoft" in (release or "").lower() or bool(_DXG.search(capture.text("kernel.log") or ""))
    return LinuxKernel(release, parse_version(release), text, words, options, wsl)


def _read_module(
    capture: MachineCapture, linux: LinuxKernel, gpus: tuple[InspectedGpu, ...], log: LinuxLog | None
) -> Module:
    modules = capture.text("proc/modules")
    folder = any(name.startswith("sys/module/amdgpu/") for name in capture.files)
    bound = any(gpu.driver == "amdgpu" for gpu in gpus)
    loaded: bool | None = True if folder or bound else None
    if loaded is None and modules is not None:
        built_in = (linux.config or {}).get("CONFIG_DRM_AMDGPU") == "y"
        loaded = bool(re.search(r"^amdgpu\b", modules, re.M)) or built_in
    start = "sys/module/amdgpu/parameters/"
    parameters = {
        name.removeprefix(start): capture.line(name) or "" for name in capture.files if name.startswith(start)
    }
    version = capture.line("sys/module/amdgpu/version")
    helper = bool(re.search(r"^(?:amdkcl|amddrm_ttm_helper|amdttm)\b", modules or "", re.M))
    helper |= any(name.startswith("sys/module/amdkcl/") for name in capture.files)
    taint = capture.line("sys/module/amdgpu/taint") or ""
    dkms: bool | None = None
    if loaded:
        dkms = bool(version) or helper or "O" in taint
        if not dkms and not folder:
            dkms = None
        if log and not dkms and log.search(r"amdgpu version: \d|amdkcl|amdgpu: loading out-of-tree module"):
            dkms = True
    return Module(loaded, version, dkms, parameters, _find_blacklist(capture, linux))


def _find_blacklist(capture: MachineCapture, linux: LinuxKernel) -> str | None:
    for word in linux.cmdline or ():
        name, _, value = word.partition("=")
        if name in ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist") and "amdgpu" in value.split(
            ","
        ):
            return word
        if word in ("nomodeset", "amdgpu.modeset=0"):
            return word
    for name in sorted(capture.files):
        if re.match(r"(?:etc|usr/lib|lib|run)/modprobe\.d/.*\.conf$", name):
            text = capture.text(name) or ""
            if re.search(
                r"^\s*blacklist\s+amdgpu\s*$|^\s*install\s+amdgpu\s+/(?:usr/)?bin/(?:true|false)", text, re.M
            ):
                return name
    return None


def _read_host(capture: MachineCapture, linux: LinuxKernel, log: LinuxLog | None) -> HostSystem:
    release = capture.text("etc/os-release") or capture.text("usr/lib/os-release")
    fields = dict(re.findall(r"^(\w+)=[\"']?(.*?)[\"']?$", release or "", re.M))
    memory = dict(re.findall(r"^(\w+):\s+(\d+)", capture.text("proc/meminfo") or "", re.M))

    def memory_bytes(name: str) -> int | None:
        return int(memory[name]) * 1024 if name in memory else None

    policy = re.search(r"\[(\w+)\]", capture.text("sys/module/pcie_aspm/parameters/policy") or "")
    lockdown = re.search(r"\[(\w+)\]", capture.text("sys/kernel/security/lockdown") or "")
    pages = (
        (int(memory["HugePages_Free"]), int(memory["HugePages_Total"]))
        if "HugePages_Total" in memory and "HugePages_Free" in memory
        else None
    )
    board = " ".join(filter(None, (capture.line(f"sys/class/dmi/id/{n}") for n in ("board_vendor", "board_name"))))
    return HostSystem(
        " ".join(filter(None, (fields.get("ID"), fields.get("ID_LIKE")))).lower() or None,
        fields.get("PRETTY_NAME"),
        _find_container(capture),
        _find_hypervisor(capture, log),
        _read_secure_boot(capture, log),
        lockdown[1] if lockdown else None,
        memory_bytes("MemAvailable"),
        memory_bytes("MemTotal"),
        memory_bytes("SwapFree"),
        pages,
        policy[1] if policy else None,
        _find_iommu_mode(capture, linux, log),
        board,
    )


def _find_container(capture: MachineCapture) -> str | None:
    marks = {".dockerenv": "docker", "run/.containerenv": "podman"}
    for name, kind in marks.items():
        if name in capture.files:
            return kind
    evidence = capture.line("run/systemd/container") or re.search(
        r"container=(\w+)", capture.text("proc/1/environ") or ""
    )
    if evidence:
        return evidence if isinstance(evidence, str) else evidence[1]
    if re.search(r"/docker/containers/|/containers/storage/|kubelet", capture.text("proc/self/mountinfo") or ""):
        return "a container"
    groups = "\n".join(filter(None, (capture.text("proc/1/cgroup"), capture.text("proc/self/cgroup"))))
    ours = "\n".join(line for line in groups.splitlines() if not line.endswith(":/"))
    return next((kind for kind, pattern in _CONTAINERS if re.search(pattern, ours)), None)


def _find_hypervisor(capture: MachineCapture, log: LinuxLog | None) -> str | None:
    product = " ".join(
        filter(None, (capture.line(f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")))
    )
    named = next((kind for kind in _HYPERVISORS if kind in product.lower()), None)
    if named:
        return product
    if re.search(r"^flags\s*:.*\bhypervisor\b", capture.text("proc/cpuinfo") or "", re.M):
        return product or "a hypervisor"
    match = log.search(r"Hypervisor detected: (.+)") if log else None
    return match[1] if match else capture.line("sys/hypervisor/type")


def _read_secure_boot(capture: MachineCapture, log: LinuxLog | None) -> bool | None:
    for name, data in capture.files.items():
        if "efivars/SecureBoot-" in name and data:
            return data[-1] == 1
    state = (
        log.search(r"secureboot: Secure boot (enabled|disabled)|Secure ?boot (enabled|disabled)") if log else None
    )
    return (state[1] or state[2]).lower() == "enabled" if state else None


def _find_iommu_mode(capture: MachineCapture, linux: LinuxKernel, log: LinuxLog | None) -> str | None:
    if log and (match := log.search(r"iommu: Default domain type: (\w+)")):
        return match[1].lower()
    option = linux.option("iommu")
    if option == "pt" or linux.option("iommu.passthrough") == "1":
        return "passthrough"
    if option == "off" or "off" in (linux.option("amd_iommu"), linux.option("intel_iommu")):
        return "off"
    types = {
        (capture.line(name) or "").upper() for name in capture.files if name.startswith("sys/kernel/iommu_groups/")
    }
    if types:
        return "passthrough" if types <= {"IDENTITY"} else "translated"
    return "translated" if any(name.startswith("sys/class/iommu/") for name in capture.files) else None


def _read_user(capture: MachineCapture) -> User | None:
    text = capture.text("id.txt")
    if not text or not text.strip():
        return None
    uid = re.search(r"\b[ue]uid=(\d+)(?:\(([^)]*)\))?|^uid=(\d+)", text) or re.search(
        r"uid[=: ]+(\d+)(?:\(([^)]*)\))?", text
    )
    listed = re.search(r"(?:groups|gruppen|groupes|grupos|группы|组)\s*[=:]\s*(.+)", text, re.IGNORECASE)
    # In any language `id` ends with the list of groups: number(name), with commas.
    body = listed[1] if listed else text.rpartition("=")[2]
    body += " " + " ".join(re.findall(r"\bgid=(\S+)", text))
    groups = {
        part for number, name in re.findall(r"(\d+)(?:\(([^)]*)\))?", body) for part in (number, name) if part
    }
    if not re.search(r"\d", body):
        groups = set(body.replace(",", " ").split())  # of `groups`, names only
    number = next((group for group in (uid.groups() if uid else ()) if group and group.isdecimal()), None)
    name = next((group for group in (uid.groups() if uid else ()) if group and not group.isdecimal()), "")
    return User(int(number) if number else None, name, frozenset(groups))


def _read_nodes(capture: MachineCapture) -> tuple[DeviceNode, ...] | None:
    """Read the device nodes from dev.txt (`ls -l` or `ls -ln` of /dev/kfd and /dev/dri). None if the capture lacks
    it.
    """
    text = capture.text("dev.txt")
    if text is None:
        return None
    nodes = []
    for line in text.splitlines():
        matched = _NODE.match(line)
        if matched:
            mode, acl, uid, gid, path = matched.groups()
            named = re.search(r"# group (\S+)", line)
            nodes.append(DeviceNode(path, mode, uid, named[1] if named else gid, acl == "+"))
    return tuple(nodes)


def _read_users(capture: MachineCapture) -> tuple[str, ...]:
    """Return the processes in users.txt, else those that KFD lists, by number only."""
    users = tuple(line for line in (capture.text("users.txt") or "").splitlines() if line.strip())
    listed = {name.split("/")[5] for name in capture.files if re.match(r"sys/class/kfd/kfd/proc/\d+/", name)}
    return users or tuple(f"{pid} process /dev/kfd" for pid in sorted(listed))


def _find_unconfigured(capture: MachineCapture) -> tuple[str, ...]:
    states = re.findall(r"^i([UFHWt])R? +(\S+)", capture.text("packages.txt") or "", re.M)
    return tuple(name.partition(":")[0] for _, name in states)


def _read_packages(capture: MachineCapture) -> dict[str, str] | None:
    """Read packages, one `name version` per line or in the formats of dpkg -l, rpm -qa and pacman -Q."""
    text = capture.text("packages.txt")
    if text is None:
        return None
    packages = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and re.fullmatch(r"[hiurp][a-zA-Z]R?", words[0]):
            words = words[1:]  # dpkg -l
        if len(words) >= 2:
            packages[words[0].partition(":")[0].partition("/")[0]] = words[1]
        elif len(words) == 1 and (matched := re.fullmatch(r"(.+?)-(\d[^-]*-[^-]+)", words[0])):
            packages[matched[1]] = matched[2]  # rpm -qa
    return packages


def is_denied(capture: MachineCapture, path: str) -> bool:
    """Return whether access to a node was tried and denied."""
    return is_permission_error(capture.unreadable.get(path, ""))
