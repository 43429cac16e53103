"""The causal order of findings, as two tables over their ids."""

from __future__ import annotations

from fnmatch import fnmatchcase

_START_FAILED = (
    "log.init-failed",
    "gpu.no-driver",
    "gpu.not-in-kfd",
    "gpu.other-driver",
    "permissions.nodes",
    "kfd.*",
)
_HANG = (
    "log.mes",
    "log.preemption",
    "log.restore-failed",
    "log.ring-timeout",
    "log.ring-recovered",
    "log.reset",
    "log.reset-failed",
    "log.resume-failed",
    "log.queue-create",
    "log.oops",
    "log.page-fault",
    "log.smu",
    "log.psp",
    "log.ring-test",
    "log.interrupts",
    "log.gpu-memory",
    "log.task-blocked",
    "log.display",
    "log.page-tables",
    "log.queue-evicted",
    "log.smu-refused",
    "power.sensors-silent",
)
# Accesses that are under way when a ring or the GPU is reset have no mapping any more.
_AFTER_A_HANG = ("pci.iommu-fault",)
# Findings that only cost speed or comfort: where something is broken, they are for later.
SPEED = (
    "pci.link-*",
    "pci.small-bar",
    "power.cap",
    "power.clocks",
    "host.memory",
    "host.huge-pages",
    "host.vram-full",
    "log.display",
    "log.smu-refused",
    "log.queue-evicted",
)
_ALL_LOG = ("log.*", "kfd.*")

# A finding → those it may explain. Of two events of the log the earlier explains the later, never the other way.
EXPLAINS: dict[str, tuple[str, ...]] = {
    "host.wsl": ("gpu.*", "kfd.*", "module.*", "permissions.*", "container.*"),
    "gpu.vfio": (*_START_FAILED, "module.not-loaded"),
    "gpu.gone": (*_START_FAILED, *_ALL_LOG, "pci.*", "power.*"),
    "module.blacklisted": ("module.not-loaded", "module.modeset-off", *_START_FAILED),
    "module.modeset-off": ("module.not-loaded", *_START_FAILED),
    "module.unconfigured": ("module.not-loaded", "module.dkms-*", *_START_FAILED),
    "module.rejected": ("module.not-loaded", "module.dkms-unused", *_START_FAILED),
    "module.mismatch": ("module.not-loaded", "module.dkms-unused", *_START_FAILED),
    "module.not-loaded": _START_FAILED,
    "module.no-amdgpu": ("module.not-loaded", *_START_FAILED),
    "module.no-kfd": ("kfd.absent", "gpu.not-in-kfd", "permissions.nodes"),
    "module.kernel-too-old": (
        *_START_FAILED,
        "module.not-loaded",
        "log.discovery",
        "firmware.missing",
        "log.psp",
        "log.smu",
    ),
    "module.dkms-unused": (),
    "parameters.unknown": (),
    "parameters.broken": (
        *_START_FAILED,
        *_ALL_LOG,
        "firmware.missing",
        "firmware.no-mes",
        "power.sensors-silent",
    ),
    "parameters.kernel": (
        "log.interrupts",
        "log.ring-*",
        "pci.corrected-errors",
        "host.memory",
        "log.init-failed",
    ),
    "parameters.warning": ("log.reset-failed", "pci.link-*", "pci.small-bar", "pci.bar-resize", "log.gpu-memory"),
    "firmware.missing": (*_START_FAILED, *_ALL_LOG, "firmware.no-mes", "firmware.old-for-t2"),
    "firmware.package-old": _START_FAILED,
    "firmware.unreadable": (*_START_FAILED, *_ALL_LOG, "firmware.no-mes", "firmware.missing"),
    "firmware.no-mes": (*_START_FAILED, "log.mes", "log.queue-create"),
    "combination.bad": (),  # each row names its symptoms
    "pci.bar-unassigned": (*_START_FAILED, *_ALL_LOG, "pci.bar-zero", "pci.bar-resize", "pci.small-bar"),
    "pci.bar-zero": (*_START_FAILED, *_ALL_LOG),
    "pci.small-bar": (),
    "pci.bar-resize": ("pci.small-bar",),
    "pci.error-count": ("pci.corrected-errors", "pci.error-status"),
    "pci.errors": (
        "pci.error-*",
        *_START_FAILED,
        *_ALL_LOG,
        "pci.lost",
        "power.resume",
        "pci.corrected-errors",
        "gpu.gone",
        "power.*",
    ),
    "pci.lost": (*_START_FAILED, *_ALL_LOG, "pci.errors", "power.*", "gpu.gone"),
    "pci.corrected-errors": ("pci.errors", "pci.lost", "gpu.gone"),
    "pci.error-status": ("pci.error-count",),
    "pci.iommu-fault": (*_START_FAILED, *_HANG, "log.init-failed"),
    "pci.atomics": ("gpu.not-in-kfd", "kfd.*", "permissions.nodes"),
    "power.resume": (*_START_FAILED, *_ALL_LOG, "pci.*", "power.*", "gpu.gone"),
    "power.runtime-error": (*_HANG, "log.init-failed", "power.stuck-asleep", "power.hot"),
    "power.stuck-asleep": (*_START_FAILED, *_ALL_LOG),
    "power.suspend": ("log.gpu-memory", "host.memory", "log.oops", "log.resume-failed"),
    "host.out-of-memory": ("log.gpu-memory", "power.suspend"),
    "power.thermal": (*_HANG, "power.hot", "pci.lost", "gpu.gone", "power.clocks"),
    "power.fan": ("power.hot", "power.thermal", "power.clocks"),
    "power.hot": ("power.clocks",),
    "ras.uncorrectable": (*_HANG, "ras.*"),
    "ras.counted": ("ras.uncorrectable", "ras.corrected*", *_HANG),
    "ras.corrected": ("ras.corrected-count",),
    "kfd.parameter": ("kfd.absent", "kfd.refused", "gpu.not-in-kfd", "permissions.nodes"),
    "kfd.cwsr-size": ("log.queue-create",),
    "permissions.policy": (),
    "host.memory-encryption": (*_START_FAILED, *_ALL_LOG, "host.bounce-buffer", "pci.bar-unassigned"),
    "host.bounce-buffer": (*_START_FAILED, *_HANG, "log.init-failed", "log.user-memory"),
    "host.reset-reason": (),
    "host.machine-check": ("host.reset-reason", *_HANG),
    "host.hot": ("host.reset-reason",),
    "log.task-blocked": ("log.display",),
    "log.display": (),
    "hung.gone": ("hung.*", *_ALL_LOG),
    "hung.reset": ("hung.ring", "hung.queue", "hung.mes", "hung.task", "hung.memory", "log.task-blocked"),
    "hung.resume": ("hung.task", "hung.ring", "log.task-blocked"),
    "hung.mes": ("hung.queue", "hung.ring", "hung.task", "hung.memory", "hung.idle", "log.task-blocked"),
    "hung.ring": ("hung.task", "hung.memory", "log.task-blocked"),
    "hung.queue": ("hung.task", "hung.memory", "hung.ring", "log.task-blocked"),
    "hung.memory": ("hung.task", "log.task-blocked"),
    "hung.storm": ("hung.task",),
    "hung.interrupts": (),
    "hung.task": ("log.task-blocked",),
    "kfd.refused": ("gpu.not-in-kfd", "permissions.nodes"),
    "kfd.absent": ("permissions.nodes", "gpu.not-in-kfd"),
    "container.hidden": ("gpu.not-in-kfd",),
    "container.nodes": ("permissions.*", "container.hidden", "kfd.absent", "gpu.not-in-kfd"),
    "host.memory": ("log.gpu-memory", "host.out-of-memory"),
    "host.vram-full": ("log.gpu-memory",),
    "host.huge-pages": ("host.memory", "host.out-of-memory"),
    "log.discovery": (*_START_FAILED, *_ALL_LOG, "firmware.missing"),
    "log.vbios": (*_START_FAILED, *_ALL_LOG),
    "log.psp": (*_START_FAILED, *_ALL_LOG, "firmware.no-mes"),
    "log.smu": (*_START_FAILED, *_HANG, "log.init-failed", "power.sensors-silent", "power.runtime-error"),
    "log.ring-test": (*_START_FAILED, *_HANG, "log.init-failed"),
    "log.page-fault": _HANG,
    "log.illegal-instruction": _HANG,
    "log.mes": (*_START_FAILED, *_HANG, "log.init-failed", "power.sensors-silent"),
    "log.preemption": _HANG,
    "log.restore-failed": _HANG,
    "log.ring-timeout": (*_HANG, *_AFTER_A_HANG),
    "log.ring-recovered": ("log.display",),
    "log.interrupts": _HANG,
    "log.gpu-memory": ("log.queue-create", "log.page-tables", "log.user-memory", "log.restore-failed"),
    "log.queue-create": (),
    "log.queue-evicted": (),
    "log.user-memory": ("log.page-tables", "log.restore-failed", "log.queue-evicted"),
    "log.page-tables": ("log.page-fault", "log.queue-evicted"),
    "log.smu-refused": (),
    "log.sriov": (*_START_FAILED, *_ALL_LOG),
    "log.xgmi": (*_START_FAILED, "log.init-failed", "log.psp", "log.smu-refused"),
    "log.oops": ("log.reset-failed", "log.reset", "log.queue-evicted", "kfd.*"),
    "log.reset": (
        *_AFTER_A_HANG,
        "log.reset-failed",
        "log.resume-failed",
        "log.psp",
        "log.smu",
        "log.ring-test",
        "log.init-failed",
        "log.gpu-memory",
        "log.mes",
        "log.page-fault",
        "log.preemption",
        "log.oops",
        "log.page-tables",
        "log.queue-evicted",
        "log.smu-refused",
        "pci.lost",
    ),
    "log.resume-failed": (
        "log.reset-failed",
        "log.smu",
        "log.mes",
        "log.ring-*",
        "log.init-failed",
        "log.oops",
        "power.sensors-silent",
        "log.page-fault",
        "log.page-tables",
        "log.smu-refused",
    ),
    "log.reset-failed": (
        "log.resume-failed",
        "log.psp",
        "log.smu",
        "log.mes",
        "log.ring-test",
        "log.init-failed",
        "log.oops",
        "power.sensors-silent",
        "log.reset",
        "log.page-tables",
        "log.queue-evicted",
        "log.smu-refused",
    ),
    "log.init-failed": (
        "gpu.no-driver",
        "gpu.not-in-kfd",
        "permissions.nodes",
        "kfd.*",
        "log.oops",
        "log.reset-failed",
    ),
    "gpu.no-driver": ("permissions.nodes", "kfd.absent"),
    "gpu.other-driver": ("permissions.nodes",),
}

# Of causes that do not explain each other: what is mended first, from the bus up to the user.
ORDER = (
    "host.wsl",
    "gpu.gone",
    "pci.lost",
    "gpu.vfio",  # as configured: a card that its guest has lost is named before
    "pci.bar-*",
    "module.blacklisted",
    "module.modeset-off",
    "module.*",
    "gpu.other-driver",
    "parameters.broken",
    "firmware.unreadable",
    "firmware.missing",
    "firmware.*",
    "combination.bad",
    "log.vbios",
    "log.discovery",
    "power.resume",
    "power.*",
    "pci.errors",
    "host.memory-encryption",
    "host.bounce-buffer",
    "pci.iommu-fault",
    "pci.atomics",
    "ras.*",
    "log.init-failed",
    "gpu.no-driver",
    "gpu.n*",
    "kfd.*",
    "container.*",
    "permissions.*",
    "host.reset-reason",
    "host.machine-check",
    "hung.gone",
    "hung.reset",
    "hung.resume",
    "hung.mes",
    "hung.queue",
    "hung.*",
    "log.*",
    "pci.*",
    "parameters.*",
    "tier.*",
    "host.*",
    "combination.*",
    "gpu.unsupported",
)

EFFECTS = ("log.reset",)  # has a cause, logged or not: of the same rank, another finding is named before
LAST = ("gpu.unsupported",)  # a property of the chip: whatever is wrong with the machine is named before


# Findings whose time-out may end just before that of the operation they wait for.
WAITERS = ("log.display", "log.task-blocked", "log.reset")
NEAR = 5  # lines
# A step that failed is logged before the function that called it: the first of a pair explains the second,
# also from some lines later.
LOGGED_LATER = (("log.resume-failed", "log.ring-test"),)
ANSWERS = ("tier.*",)  # what the driver says in the end: any cause may explain it


def may_explain(cause: str, consequence: str, more: tuple[str, ...] = ()) -> bool:
    answer = any(fnmatchcase(consequence, pattern) for pattern in ANSWERS) and cause != consequence
    return answer or any(fnmatchcase(consequence, pattern) for pattern in (*EXPLAINS.get(cause, ()), *more))


def is_inner_step(finding: str, other: str, lines: int) -> bool:
    """Return whether a finding is a step of another finding that is logged that many `lines` later."""
    return (other, finding) in LOGGED_LATER and 0 <= lines <= NEAR


def log_distance(cause: str, consequence: str) -> int:
    """Return how many lines after its consequence a cause may be logged."""
    return NEAR if consequence in WAITERS or (cause, consequence) in LOGGED_LATER else 0


def rank(finding_id: str) -> int:
    return next((index for index, pattern in enumerate(ORDER) if fnmatchcase(finding_id, pattern)), len(ORDER))
