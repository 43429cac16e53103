"""Create a bundle from the collected files: limited in size, redacted, listed with digests."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from zinc_rt.doctor.bundle.bounds import MOST_BYTES, ROOM_BYTES, BundleFile, Cut, limit_items
from zinc_rt.doctor.bundle.combination import MachineCombination, find_combination, format_version
from zinc_rt.doctor.bundle.format import FINDINGS, MACHINE, SCHEMA, Bundle, parse_json
from zinc_rt.doctor.bundle.redact import Redactor
from zinc_rt.doctor.bundle.show import format_readme
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.host.version import __version__


@dataclass(slots=True)
class BundleMaker:
    """Collects items. `known` are names to redact (by kind), `notes` sentences for the reader."""

    simulated: bool = False
    items: list[BundleFile] = field(default_factory=list)
    known: Mapping[str, Iterable[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    most_bytes: int = MOST_BYTES

    def add(self, path: str, content: bytes | str, kind: str) -> None:
        """Add a file. The first file of a path is kept, because files collected earlier are more relevant."""
        if all(item.path != path for item in self.items):
            self.items.append(BundleFile(path, content.encode() if isinstance(content, str) else content, kind))

    def add_machine(self, capture: MachineCapture, findings: Sequence[Any] = ()) -> None:
        for name, content in capture.files.items():
            self.add(MACHINE + name, content, "log" if name == "kernel.log" else "machine")
        if "capture.json" not in capture.files:
            described = {
                "schema": "zinc-rt-capture/1",
                "tool": f"zinc-rt {__version__}",
                "unreadable": capture.unreadable,
            }
            self.add(f"{MACHINE}capture.json", json.dumps(described, indent=1), "machine")
        rows = [finding if isinstance(finding, dict) else asdict(finding) for finding in findings]
        self.add(FINDINGS, json.dumps(rows, indent=1), "text")

    def make_bundle(self) -> Bundle:
        """Limit the size, redact, then limit the size again."""
        machine = {
            item.path.removeprefix(MACHINE): item.content for item in self.items if item.path.startswith(MACHINE)
        }
        self._separate_foreign_reports(find_combination(machine, simulated=self.simulated))
        reports = [body for item in self.items if item.kind == "report" and (body := _parse_object(item.content))]
        configuration = find_combination(machine, reports, simulated=self.simulated)
        items, cuts = limit_items(self.items, self.most_bytes - ROOM_BYTES)
        redactor = Redactor(self.known)
        about = json.dumps(configuration.as_dict()).encode()
        kinds = {item.path: item.kind for item in items}
        redacted, left_out = redactor.redact_files(
            {**{item.path: item.content for item in items}, "about.json": about}
        )
        names = {redactor.path(path): kind for path, kind in kinds.items()}
        cuts = [Cut(redactor.path(cut.path), cut.had_bytes, cut.kept_bytes, cut.why) for cut in cuts]
        notes = [redactor.text(note) for note in self.notes]
        hidden = json.loads(redacted.pop("about.json"))
        contents = [BundleFile(name, content, names.get(name, "text")) for name, content in redacted.items()]
        last, more = limit_items(contents, self.most_bytes - 60_000)
        cuts += [Cut(path, 0, 0, reason) for path, reason in left_out.items()] + more
        files = {item.path: item.content for item in last}
        manifest: dict[str, Any] = {
            "schema": SCHEMA,
            "tool": {"name": "zinc-rt", "version": __version__},
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "simulated": self.simulated,
            "combination": hidden,
            "cut": [asdict(cut) for cut in cuts],
            "hidden": dict(sorted(redactor.hidden.items())),
            "notes": notes,
        }
        files["README.txt"] = format_readme(Bundle({**manifest, "files": []}, files)).encode()
        manifest["files"] = [_make_manifest_entry(name, files[name]) for name in sorted(files)]
        return Bundle(manifest, files)

    def _separate_foreign_reports(self, configuration: MachineCombination) -> None:
        """Move reports of another kernel, firmware or device to logs/: the store must not mix setups."""
        for location, item in enumerate(self.items):
            body = _parse_object(item.content) if item.kind == "report" else {}
            reason = explain_foreign_report(body, configuration)
            if reason:
                name = item.path.rpartition("/")[2]
                self.notes.append(f"{name} belongs to another setup ({reason}): moved to logs/")
                self.items[location] = BundleFile(f"logs/of-another-setup-{name}", item.content, "log")


def explain_foreign_report(report: Mapping[str, Any], configuration: MachineCombination) -> str:
    """Return the reason why a report belongs to another setup; "" if it does not or if this is unknown."""
    device = report.get("device")
    if not isinstance(device, dict):
        return ""
    if device.get("simulated") and not configuration.simulated:
        return "of a simulated device"
    if device.get("render_path") and not device.get("simulated") and configuration.simulated:
        return "of a card"
    kernel = str(device.get("kernel") or "")
    if kernel and configuration.kernel and kernel != configuration.kernel:
        return f"kernel {kernel}"
    firmware = device.get("firmware")
    for name, version in firmware.items() if isinstance(firmware, dict) else ():
        here = configuration.firmware.get(str(name).lower())
        if here is not None and here != format_version(version):
            return f"{name} firmware {format_version(version)}"
    return ""


def _make_manifest_entry(name: str, content: bytes) -> dict[str, Any]:
    return {"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _parse_object(content: bytes) -> dict[str, Any]:
    body = parse_json(content)
    return body if isinstance(body, dict) else {}
