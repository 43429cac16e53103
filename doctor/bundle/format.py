"""The bundle format: files that describe a machine and its results, listed with digests in bundle.json.

bundle.json   schema zinc-rt-bundle/1: time, version, the combination, files, truncations and redactions
README.txt    the same information as text
machine/      a capture (doctor's); findings.json is in the parent folder
reports/      zinc-rt-report/1: pm4-test, validate, gates, bring-up stages
hangs/        one folder per hang
logs/         the kernel log, journals
facts/        results of --learn
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zinc_rt.doctor.bundle import archive
from zinc_rt.doctor.bundle.combination import MachineCombination
from zinc_rt.doctor.capture import MachineCapture
from zinc_rt.host.errors import InputError, OutputError

SCHEMA = "zinc-rt-bundle/1"
MANIFEST = "bundle.json"
MACHINE = "machine/"
FINDINGS = "findings.json"
REPORT_SCHEMA = "zinc-rt-report/1"
_MEMBERS: Mapping[str, type] = {
    "schema": str,
    "tool": dict,
    "created": str,
    "simulated": bool,
    "combination": dict,
    "files": list,
    "cut": list,
    "hidden": dict,
    "notes": list,
}


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was read. `files` excludes bundle.json; each matches its entry there."""

    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]
    source: str = ""

    @property
    def id(self) -> str:
        """Return an id that depends only on the content, not on the packing."""
        return hashlib.sha256(json.dumps(self.manifest, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def combination(self) -> MachineCombination:
        known = {name: value for name, value in self.manifest["combination"].items() if name in _FIELDS}
        return MachineCombination(**known)

    @property
    def reports(self) -> dict[str, dict[str, Any]]:
        """Return the files that can be read as reports."""
        bodies = {}
        for name, content in self.files.items():
            if name.startswith("reports/") and name.endswith(".json"):
                body = parse_json(content)
                if isinstance(body, dict) and body.get("schema") == REPORT_SCHEMA:
                    bodies[name] = body
        return bodies

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Return the findings of doctor, root causes first."""
        body = parse_json(self.files.get(FINDINGS, b"[]"))
        return [item for item in body if isinstance(item, dict)] if isinstance(body, list) else []

    @property
    def capture(self) -> MachineCapture:
        """Return the machine as captured by doctor, except for redactions and truncations."""
        files = {n.removeprefix(MACHINE): content for n, content in self.files.items() if n.startswith(MACHINE)}
        described = parse_json(files.get("capture.json", b"{}"))
        unreadable = described.get("unreadable", {}) if isinstance(described, dict) else {}
        return MachineCapture(files, unreadable if isinstance(unreadable, dict) else {})


_FIELDS = frozenset(MachineCombination.__dataclass_fields__)


def write(bundle: Bundle, path: Path) -> int:
    """Write a folder or an archive, chosen by suffix. Return its size in bytes. Raises OutputError."""
    files = {MANIFEST: (json.dumps(bundle.manifest, indent=1) + "\n").encode(), **bundle.files}
    if archive.is_archive(path):
        archive.write_archive(path, files)
        return path.stat().st_size if path.is_file() else 0
    archive.write_folder(path, dict(reversed(files.items())), list_bundle_files(path))
    return sum(map(len, files.values()))


def list_bundle_files(folder: Path) -> list[str]:
    """Return the files of the bundle in `folder`. Raises OutputError for a folder with other contents."""
    if not folder.exists():
        return []
    if not folder.is_dir():
        raise OutputError(f"{folder}: not a folder", next="-o DIR, or -o FILE.tar.gz")
    try:
        manifest = _read_manifest((folder / MANIFEST).read_bytes(), folder)
        return [archive.check_member_name(str(file["path"]), folder) for file in manifest["files"]] + [MANIFEST]
    except (OSError, InputError) as error:
        if any(folder.iterdir()):
            raise OutputError(
                f"{folder}: contains other files", next="give a new folder, or FILE.tar.gz"
            ) from error
        return []


def read(path: Path) -> Bundle:
    """Read a bundle from a folder or archive. Raises InputError with one sentence for a bundle that is damaged,
    truncated, hostile or of another version.
    """
    if path.is_dir():
        try:
            text = (path / MANIFEST).read_bytes()
        except OSError as error:
            raise InputError(f"{path}: not a bundle: bundle.json: {error.strerror}") from error
        manifest = _read_manifest(text, path)
        files = archive.read_listed(path, [str(file["path"]) for file in manifest["files"]])
    else:
        files = archive.read_archive(path)
        if MANIFEST not in files:
            raise InputError(f"{path}: not a bundle: bundle.json is missing", next="zinc-rt bundle -o FILE.tar.gz")
        manifest = _read_manifest(files.pop(MANIFEST), path)
    listed = {
        archive.check_member_name(str(file["path"]), path): str(file["sha256"]) for file in manifest["files"]
    }
    for name in listed.keys() ^ files.keys():
        word = "is listed but missing" if name in listed else "is not listed in bundle.json"
        raise InputError(f"{path}: not a bundle: {name!r} {word}", next="ask the sender for it again")
    for name, digest in listed.items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise InputError(
                f"{path}: not a bundle: {name!r} does not match bundle.json", next="ask the sender for it again"
            )
    return Bundle(manifest, files, str(path))


def _read_manifest(content: bytes, where: Path) -> dict[str, Any]:
    body = parse_json(content)
    if not isinstance(body, dict) or "schema" not in body:
        raise InputError(f"{where}: not a bundle: bundle.json is damaged", next="ask the sender for it again")
    if body["schema"] != SCHEMA:
        raise InputError(
            f"{where}: schema {str(body['schema'])[:40]}, but this build reads {SCHEMA}",
            next="use the zinc-rt version that created it",
        )
    for name, kind in _MEMBERS.items():
        if not isinstance(body.get(name), kind):
            raise InputError(
                f"{where}: not a bundle: bundle.json has no valid {name!r}", next="ask the sender for it again"
            )
    for row in body["files"]:
        if (
            not isinstance(row, dict)
            or not isinstance(row.get("path"), str)
            or not isinstance(row.get("sha256"), str)
        ):
            raise InputError(
                f"{where}: not a bundle: bundle.json lists {str(row)[:60]}", next="ask the sender for it again"
            )
    for name, value in body["combination"].items():
        expected = dict if name in ("firmware", "parameters", "packages") else bool if name == "simulated" else str
        if not isinstance(value, expected):
            raise InputError(
                f"{where}: not a bundle: its combination has no valid {name!r}", next="ask the sender for it again"
            )
    return body


def parse_json(content: bytes) -> Any:
    """Parse JSON. Return None for invalid JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
