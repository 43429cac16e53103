"""Redact the kernel command line: keys, addresses, names of disks.

Names of parameters are kept; values are kept only if they concern hardware and drivers. All other values
are removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# Parameters whose values a reader of bundles wants, and that hold nothing of a person's.
_MODULES = (
    "amdgpu amdkfd radeon ttm drm drm_kms_helper i915 xe nouveau processor cpufreq amd_pstate intel_idle "
    "intel_pstate pcie_aspm pci pciehp vfio vfio-pci vfio_pci kvm kvm_amd kvm_intel snd_hda_intel nvme_core "
    "usbcore workqueue rcupdate rcutree zswap acpi modprobe mce watchdog edac_core printk kfence"
)
_FAMILIES = "amd_ intel_ pci_ pcie_ acpi_ hugepages transparent_hugepage numa_ nohz rcu_ init_on_ cgroup_"
_NAMES = (
    "BOOT_IMAGE amd_iommu apparmor apic audit clocksource cma console consoleblank crashkernel "
    "default_hugepagesz earlyprintk efi efifb fbcon fips hpet hugepagesz hung_task_panic idle iommu "
    "iommu.passthrough iommu.strict irqaffinity irqpoll isolcpus kaslr lockdown log_buf_len loglevel lsm maxcpus "
    "mce mem memmap mitigations modeset module_blacklist modprobe.blacklist nmi_watchdog nokaslr nomodeset nosmt "
    "nr_cpus numa_balancing panic pci pcie_aspm preempt psi pti rd.driver.blacklist reboot rhgb ro rootfstype rw "
    "security selinux slab_nomerge softlockup_panic spec_store_bypass_disable splash split_lock_detect swiotlb "
    "sysrq_always_enabled systemd.unified_cgroup_hierarchy threadirqs tsc vga video x2apic"
)
HARMLESS = re.compile(
    rf"(?:{'|'.join(map(re.escape, _MODULES.split()))})\.\w+|(?:{'|'.join(_FAMILIES.split())})\w*|"
    rf"{'|'.join(map(re.escape, _NAMES.split()))}"
)
_BARE = re.compile(
    r"(?:quiet|splash|rhgb|ro|rw|debug|single|rootwait|threadirqs|no[a-z0-9_]{2,20}|[a-z]{2,8}_off)"
)
_LINES = (
    re.compile(r"(?m)^(?P<line>BOOT_IMAGE=.*)$"),
    re.compile(r'(?m)(?P<head>(?:[Kk]ernel )?[Cc]ommand line: ?)(?P<line>(?:(?!\\n|", ).)*)'),
    re.compile(r'(?m)(?P<head>^\s*GRUB_CMDLINE_LINUX\w*=["\']?)(?P<line>[^"\'\n]*)'),  # /etc/default/grub
    re.compile(r"(?m)(?P<head>^options[ \t]+)(?P<line>.*\broot=.*)$"),  # a boot loader's entry
    re.compile(r'(?P<head>[Uu]nknown kernel command line parameters ")(?P<line>[^"\n]*)'),
)
Hide = Callable[[str], str]


def redact_line(line: str, hide: Hide) -> str:
    """Redact one command line; `hide` returns the placeholder of a value."""
    words = []
    for word in _split(line):
        name, equals, value = word.partition("=")
        if equals and value and not (HARMLESS.fullmatch(name) or _is_placeholder(value)):
            word = f"{name}={hide(value)}" if re.fullmatch(r"[\w.,:@-]{1,64}", name) else hide(word)
        elif not equals and not (
            _BARE.fullmatch(word) or HARMLESS.fullmatch(word) or word == "--" or _is_placeholder(word)
        ):
            word = hide(word)
        words.append(word)
    return " ".join(words)


def redact_lines(text: str, hide: Hide) -> str:
    """Redact every command line in a log."""
    for pattern in _LINES:
        text = pattern.sub(lambda m: (m.groupdict().get("head") or "") + redact_line(m["line"], hide), text)
    return text


def _is_placeholder(value: str) -> bool:
    return bool(re.fullmatch(r"<[a-z]+-\d+>", value))


def _split(line: str) -> list[str]:
    """Split at blanks, except inside double quotes (lib/cmdline.c, next_arg)."""
    return re.findall(r'(?:[^\s"]|"[^"]*"?)+', line)
