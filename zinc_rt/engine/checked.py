"""The record of pm4-test results on this machine, per card, kernel, module, firmware and tier.

A driver fault on an untested GPU tier appears as a wrong token or a hang. The probes therefore record the
setups that passed, and the tier selection reads the record. Any change below a tier invalidates its result.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zinc_rt.host import files
from zinc_rt.host.errors import InputError, OutputError, ZincError
from zinc_rt.host.files import write_atomically
from zinc_rt.kmd.discover import Gpu
from zinc_rt.kmd.driver import Driver, list_folder
from zinc_rt.kmd.render_node import RenderNode

SCHEMA = "zinc-rt-checked/1"
MODULE = "/sys/module/amdgpu"
NAMES = {"chip": "chip", "pci_id": "PCI id", "card": "card", "kernel": "kernel", "module": "amdgpu module"}


@dataclass(frozen=True, slots=True)
class TestedSetup:
    """The setup below a tier. `card` is a hash of the card's unique id, so it identifies cards without
    disclosing the id."""

    chip: str
    pci_id: str
    card: str
    kernel: str
    module: str
    firmware: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def describe_differences(self, earlier: TestedSetup) -> list[str]:
        """Return the differences from an earlier setup as sentences."""
        texts = [
            f"{name} {getattr(earlier, key) or 'unknown'} → {getattr(self, key) or 'unknown'}"
            for key, name in NAMES.items()
            if getattr(self, key) != getattr(earlier, key)
        ]
        names = sorted({*self.firmware, *earlier.firmware})
        return texts + [
            f"{name} firmware {earlier.firmware.get(name, 'unknown')} → {self.firmware.get(name, 'unknown')}"
            for name in names
            if self.firmware.get(name) != earlier.firmware.get(name)
        ]


@dataclass(frozen=True, slots=True)
class Verdict:
    passed: bool
    why: str


def record_path() -> Path:
    return files.state_directory() / "checked.json"


def identify_setup(driver: Driver, gpu: Gpu) -> TestedSetup:
    """Return the setup, as far as the kernel exposes it to this user. Unreadable fields are empty, which
    makes the setup a different one."""
    device = f"/sys/class/drm/{gpu.name}/device"
    unique = _read(driver, f"{device}/unique_id") or gpu.pci_address
    firmware = {}
    for name in list_folder(driver, f"{device}/fw_version"):
        firmware[name.removesuffix("_fw_version")] = _read(driver, f"{device}/fw_version/{name}")
    vbios = _read(driver, f"{device}/vbios_version")
    firmware |= {"vbios": vbios} if vbios else {}
    try:
        node = RenderNode(driver, gpu.render_path)
        try:  # MES is not among the files
            firmware |= {name.lower(): f"{version:#x}" for name, version in node.query_firmware().items()}
        finally:
            node.close()
    except ZincError:
        pass
    module = [_read(driver, f"{MODULE}/{name}") for name in ("version", "srcversion")]
    ids = [_read(driver, f"{device}/{name}").removeprefix("0x") for name in ("vendor", "device", "revision")]
    return TestedSetup(
        chip=gpu.arch,
        pci_id=":".join(filter(None, ids)),
        card=hash_card(ids, unique),
        kernel=_read(driver, "/proc/sys/kernel/osrelease"),
        module=" ".join(filter(None, module)),
        firmware=firmware,
    )


def hash_card(ids: Sequence[str], unique: str) -> str:
    """Return a hash of the PCI ids and the card's unique number, or of its slot. It identifies the card but
    does not disclose the number."""
    return hashlib.sha256(f"zinc-rt card {':'.join(ids)} {unique}".encode()).hexdigest()[:16]


def check_verdict(setup: TestedSetup, tier: str, path: Path | None = None) -> Verdict:
    """Return whether the last pm4-test of this tier on exactly this setup passed, or the reason why not."""
    path = path or record_path()
    try:
        rows = [row for row in read(path) if row["tier"] == tier]
    except InputError as error:
        return Verdict(False, str(error).partition("\n")[0])
    for row in rows:
        if row["setup"] == setup:
            if row["passed"]:
                return Verdict(True, f"pm4-test passed here on {row['when']}")
            return Verdict(False, f"pm4-test failed here on {row['when']} ({', '.join(row['failed'][:3])})")
    before = [row for row in rows if row["passed"] and row["setup"].card == setup.card]
    if before:
        last = max(before, key=lambda row: str(row["when"]))
        changed = ", ".join(setup.describe_differences(last["setup"]))
        return Verdict(False, f"pm4-test passed on {last['when']}, but since then: {changed}")
    return Verdict(False, "pm4-test has not passed on this card, kernel and driver")


def write_record(
    setup: TestedSetup, tier: str, *, failed: Iterable[str], hazard: int, probes: int, path: Path | None = None
) -> None:
    """Record a tier's latest result on this setup. `failed` empty: it passed. Raises OutputError."""
    path = path or record_path()
    row = {
        "key": setup.key,
        "tier": tier,
        "passed": not (names := list(failed)),
        "failed": names,
        "hazard": hazard,
        "probes": probes,
        "when": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "setup": setup,
    }
    with _lock_record(path):
        try:
            rows = read(path)
        except InputError:
            rows = []  # a damaged record proves nothing, and is replaced
        rows = [row for row in rows if (row["setup"], row["tier"]) != (setup, tier)] + [row]
        body = {"schema": SCHEMA, "rows": [{**row, "setup": asdict(row["setup"])} for row in rows]}
        write_atomically(path, lambda file: file.write((json.dumps(body, indent=1) + "\n").encode()))


def read(path: Path) -> list[dict[str, Any]]:
    """Return the recorded rows, with `setup` as a Setup, or None if there is no file. Raises InputError for a
    damaged file."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema"] != SCHEMA:
            raise InputError(f"{path}: schema is {body['schema']}; this build reads {SCHEMA}")
        rows = [{**row, "setup": TestedSetup(**row["setup"])} for row in body["rows"]]
        if not all(isinstance(row["passed"], bool) and isinstance(row["failed"], list) for row in rows):
            raise TypeError
        return [row for row in rows if row["tier"] and row["when"]]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: damaged", next="run zinc-rt pm4-test again: it rewrites the record") from error


@contextmanager
def _lock_record(path: Path) -> Iterator[None]:
    """Hold the file's lock, because two cards may be probed at the same time."""
    import fcntl  # GPU tiers need Linux; this room is read elsewhere too

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise OutputError(f"{path}: the result cannot be recorded: {error.strerror}") from error


def _read(driver: Driver, path: str) -> str:
    try:
        return driver.read_file(path).decode(errors="replace").strip()
    except OSError:
        return ""
