"""Rules about this user's permission to open the device nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.doctor.machine import DeviceNode, InspectedMachine, User
from zinc_rt.doctor.read_machine import is_denied
from zinc_rt.doctor.rule import BOTH, DoctorRule, Observation, make_event_rule

# systemd's default gives everybody the render nodes and /dev/kfd (meson: group-render-mode 0666); Debian and what
# comes from it build with 0660. What is not in the list may do either.
CLOSED = ("debian", "ubuntu")
UNMAPPED = "65534"  # /proc/sys/fs/overflowuid and overflowgid, where nobody has changed them
OPEN = ("fedora", "rhel", "centos", "arch", "suse", "opensuse", "nixos", "gentoo")


def _check_membership(machine: InspectedMachine) -> Iterator[Observation]:
    if not machine.gpus and not machine.drives_unlisted_gpu:
        return  # nothing to open
    user, host = machine.user, machine.host.distribution or ""
    denied = [node for node in _list_node_paths(machine) if is_denied(machine.capture, node.strip("/"))]
    if denied and any("not permitted" in machine.capture.unreadable.get(item.strip("/"), "") for item in denied):
        return  # a device cgroup: _denied_by_policy
    if denied:
        group = next((node.gid for node in machine.nodes or () if node.path == denied[0]), "render")
        yield Observation(
            f"this user may not open {', '.join(denied)}",
            _format_evidence(machine, denied),
            next=_format_join_advice(group),
        )
        return
    if user is None:
        return
    if user.uid == 0 or "0" in user.groups:
        yield from _check_root_of_namespace(machine, user)
        return
    if machine.nodes:
        closed = [node for node in machine.nodes if _is_inaccessible(node, user.groups, user.uid)]
        for node in closed[:1]:
            paths = [item.path for item in closed]
            title = f"this user is not in {_find_group_name(node)}, the group of {', '.join(paths)}"
            yield Observation(
                title, _format_evidence(machine, paths), next=_format_join_advice(_find_group_name(node))
            )
        return
    if user.groups & {"render"} or _is_opened_by_udev(machine) or all(group.isdecimal() for group in user.groups):
        return  # numbers alone do not say whose they are
    evidence = (f"id.txt: {(machine.capture.line('id.txt') or '')[:200]}",)
    if any(word in host.split() for word in CLOSED) or not any(word in host.split() for word in OPEN):
        only_video = "video" in user.groups
        title = "this user is not in the group render" + (" (only in video)" if only_video else "")
        yield Observation(title, evidence, severity=None if host else "warning")
    else:
        yield Observation(
            "this user is not in the group render; this distribution opens the nodes to all users",
            evidence,
            severity="note",
            next="if a probe reports `Permission denied`: sudo usermod -aG render $USER, then log in again",
        )


def _check_root_of_namespace(machine: InspectedMachine, user: User) -> Iterator[Observation]:
    """Report root of a user namespace (rootless container): a node whose owner or group has no name there shows
    UNMAPPED, and root may open it only by its group. A group UNMAPPED of the user may be render: it is kept from
    outside.
    """
    foreign = [
        node
        for node in machine.nodes or ()
        if UNMAPPED in (node.uid, node.gid) and _is_inaccessible(node, user.groups, user.uid)
    ]
    if foreign and UNMAPPED not in user.groups:
        paths = [node.path for node in foreign]
        yield Observation(
            f"root of this container is another user outside, who may not open {', '.join(paths)}",
            _format_evidence(machine, paths),
            next="add the user who starts the container to the group render on the host, and start it with "
            "--group-add keep-groups (podman), or as root",
        )


def _is_opened_by_udev(machine: InspectedMachine) -> bool:
    """Report a udev rule of the administrator that gives all users access to /dev/kfd."""
    rules = [
        text for name in machine.capture.files if "udev/rules.d/" in name and (text := machine.capture.text(name))
    ]
    return any(re.search(r"^[^#\n]*kfd.*MODE:?=\"?0?(?:666|777)", text, re.M) for text in rules)


def _is_inaccessible(node: DeviceNode, groups: frozenset[str], uid: int | None) -> bool:
    """Return whether mode, owner and group deny this user a node that a tier opens. An ACL may allow it."""
    if not (node.path.endswith("/kfd") or "/renderD" in node.path) or node.acl:
        return False
    mode = node.mode[4:6] if node.gid in groups else node.mode[1:3] if node.uid == str(uid) else node.mode[7:9]
    return mode != "rw"


def _find_group_name(node: DeviceNode) -> str:
    return "render" if node.gid.isdecimal() and node.gid != "0" else node.gid


def _format_join_advice(group: str) -> str:
    if group in ("root", "0"):
        return (
            "sudo udevadm trigger /dev/kfd: a node with group root was created before its udev rule "
            "(70-kfd, 50-udev-default)"
        )
    return f"sudo usermod -aG {group} $USER, then log out and in again (`newgrp {group}` for this shell)"


def _list_node_paths(machine: InspectedMachine) -> list[str]:
    return ["/dev/kfd", *(f"/dev/dri/{gpu.render}" for gpu in machine.is_relevant if gpu.render)]


def _format_evidence(machine: InspectedMachine, paths: list[str]) -> tuple[str, ...]:
    lines = [
        line for line in (machine.capture.text("dev.txt") or "").splitlines() if any(p in line for p in paths)
    ]
    texts = [f"dev.txt: {line}" for line in lines]
    texts += [
        f"{p}: {machine.capture.unreadable[p.strip('/')]}"
        for p in paths
        if p.strip("/") in machine.capture.unreadable
    ]
    return (*texts[:4], *((f"id.txt: {machine.capture.line('id.txt')}",) if machine.user else ()))


def _check_missing_nodes(machine: InspectedMachine) -> Iterator[Observation]:
    """The driver has initialised the GPU, but udev or a container has not created its nodes."""
    if machine.host.container:
        return
    if not machine.gpus and machine.nodes and all(node.path == "/dev/kfd" for node in machine.nodes):
        yield Observation(
            "/dev/kfd exists, and no /dev/dri node: the DRM half of amdgpu has no device",
            ("dev.txt: /dev/kfd, and nothing in /dev/dri",),
        )
        return
    if not any(gpu.driver == "amdgpu" for gpu in machine.is_relevant):
        return
    if machine.nodes is None:
        unreadable = machine.capture.unreadable
        missing = [
            path for path in _list_node_paths(machine) if "no such" in unreadable.get(path.strip("/"), "").lower()
        ]
    else:
        paths = {node.path for node in machine.nodes}
        missing = [path for path in _list_node_paths(machine) if path not in paths]
    if "/dev/kfd" in missing and machine.kfd is None:
        missing.remove("/dev/kfd")
    if missing:
        yield Observation(
            f"{', '.join(missing)} do not exist, although amdgpu drives the GPU", ("dev.txt: (not listed)",)
        )


def _check_policy_denial(machine: InspectedMachine) -> Iterator[Observation]:
    for seen in make_event_rule("policy-denied")(machine):
        text = " ".join(seen.evidence)
        kind = "AppArmor" if "apparmor" in text else "SELinux"
        program = re.search(r"comm=\"([^\"]+)\"", text)
        by = program[1] if program else "a program"
        if kind == "AppArmor":
            yield replace(seen, title=f"AppArmor denies {by} a device node of the GPU")
            continue
        yield replace(
            seen,
            title=f"SELinux denies {by} a device node of the GPU",
            next="for a container: setsebool -P container_use_devices 1, or a newer container-selinux "
            "(2.213 allows to map the nodes); `ausearch -m avc -ts recent` lists the denials",
        )


def _check_cgroup_denial(machine: InspectedMachine) -> Iterator[Observation]:
    """Report EPERM, which comes from the device cgroup of a container or service; a restrictive file mode gives
    EACCES.
    """
    reasons = {path: machine.capture.unreadable.get(path.strip("/"), "") for path in _list_node_paths(machine)}
    denied = [path for path, reason in reasons.items() if "not permitted" in reason]
    if denied and machine.gpus:
        yield Observation(
            f"the device cgroup does not permit {', '.join(denied)}",
            tuple(f"{path}: {reasons[path]}" for path in denied),
            next="docker, podman: --device /dev/kfd --device /dev/dri; LXC: lxc.cgroup2.devices.allow for the "
            "majors of /dev/kfd and /dev/dri (`ls -ln`), with a bind mount; systemd: DeviceAllow=/dev/kfd rw",
        )


def _check_policies(machine: InspectedMachine) -> Iterator[Observation]:
    yield from _check_policy_denial(machine)
    yield from _check_cgroup_denial(machine)


RULES = (
    DoctorRule(
        "permissions.policy",
        "broken",
        "a security policy denies access to the GPU's device nodes",
        "the mode and the group of the node do not matter then",
        "change the profile of the program, or of its container",
        BOTH,
        _check_policies,
    ),
    DoctorRule(
        "permissions.group",
        "broken",
        "this user may not open the GPU's device nodes",
        "t1 opens /dev/kfd and the render node, t2 the render node, both for reading and writing",
        "sudo usermod -aG render,video $USER, then log out and in again",
        BOTH,
        _check_membership,
    ),
    DoctorRule(
        "permissions.nodes",
        "broken",
        "device nodes are missing",
        "a tier cannot open the GPU without its node",
        "sudo udevadm trigger --subsystem-match=drm --subsystem-match=kfd; `ls -l /dev/kfd /dev/dri`",
        BOTH,
        _check_missing_nodes,
    ),
)
