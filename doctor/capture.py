"""A machine as files: collected on a live one, written to a folder, read elsewhere.

Files have their original paths (`proc/version`, `sys/class/drm/card0/device/vendor`). The output of
programs is in `kernel.log` (dmesg), `id.txt`, `packages.txt`, `firmware.txt`, `lspci.txt`, `dev.txt` (`ls
-ln` of the device nodes) and `ioctl.json`. `capture.json` contains the time, the version, and the items
that could not be read. An absent file means unknown, not healthy.
"""

from __future__ import annotations

import json
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from zinc_rt.doctor.gather import LATER, gather_files
from zinc_rt.doctor.reading import read_bounded, read_members
from zinc_rt.host import input_files
from zinc_rt.host.errors import InputError, OutputError
from zinc_rt.host.version import __version__

SYSFS = "sysfs.txt"  # output of `grep -s . /sys/...`: path, colon, line; of the later sample: sysfs-later.txt
_COMPONENT = r"(?:(?:pci)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}\.[0-7])?|[^/:\s]+)"
_GREP_LINE = re.compile(rf"^/((?:{_COMPONENT}/)+[^/:\s]+):(.*)$")
SCHEMA = "zinc-rt-capture/1"
INDEX = "capture.json"
TOTAL_BYTES = 64 << 20
FILES = 20_000


@dataclass(frozen=True, slots=True)
class MachineCapture:
    files: Mapping[str, bytes]
    """POSIX relative path → content."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Path → the reason why it could not be read."""

    def text(self, path: str) -> str | None:
        """Return the text in any encoding, without NULs and carriage returns; None if it is absent."""
        data = self.files.get(path)
        if data is None:
            return None
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            decoded = data.decode("utf-16", errors="replace")
        else:
            decoded = data.decode("utf-8-sig", errors="replace")
        return decoded.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")

    def line(self, path: str) -> str | None:
        """Return the single value of a sysfs file; None if it is absent or empty."""
        return (self.text(path) or "").strip() or None

    def write(self, folder: Path) -> None:
        """Write one file per path, and capture.json. Raises OutputError."""
        index = {
            "schema": SCHEMA,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": __version__,
            "unreadable": dict(sorted(self.unreadable.items())),
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in self.files.items():
                if _safe_name(name) is None:
                    raise OutputError(f"{name}: not a path inside a capture")
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            where = error.filename or folder
            raise OutputError(f"{where}: cannot write: {error.strerror}", next="choose another folder") from error

    @staticmethod
    def read(folder: Path) -> MachineCapture:
        """Read a capture from a folder or archive. Raises InputError for a path that is not a folder,
        contains no data of a machine, or has an invalid index."""
        if not folder.exists():
            raise InputError(f"{folder}: no such folder", next="zinc-rt doctor --capture DIR creates one")
        if not folder.is_dir():
            raise InputError(
                f"{folder}: is a file, expected the folder of a capture", next="unpack it, then --from the folder"
            )
        files: dict[str, bytes] = {}
        unreadable: dict[str, str] = {}
        left = TOTAL_BYTES
        for path in _walk_folder(folder, folder, unreadable):
            name = path.relative_to(folder).as_posix()
            if name == INDEX:
                continue
            if len(files) >= FILES or left <= 0:
                unreadable[name] = f"omitted: more than {FILES} files or {TOTAL_BYTES >> 20} MiB"
                continue
            try:
                files[name] = read_bounded(path)
            except OSError as error:
                unreadable[name] = error.strerror or str(error)
                continue
            left -= len(files[name])
        unreadable |= _read_index(folder / INDEX)
        if not any(name.startswith(("proc/", "sys/", "etc/")) or "/" not in name for name in files):
            raise InputError(
                f"{folder}: not a capture (no proc/, sys/, kernel.log, lspci.txt, ...)",
                next="docs/doctor.md describes the contents of a capture",
            )
        return MachineCapture(with_grep_output(files), unreadable)


def with_grep_output(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files, including those listed in sysfs.txt and sysfs-later.txt as lines `path:content`."""
    result = dict(files)
    for name, prefix in ((SYSFS, ""), ("sysfs-later.txt", LATER)):
        lines: dict[str, list[str]] = {}
        for line in files.get(name, b"").decode(errors="replace").splitlines():
            matched = _GREP_LINE.match(line)
            if matched and len(lines) < FILES and _safe_name(matched[1]):
                lines.setdefault(prefix + matched[1], []).append(matched[2])
        for path, output in lines.items():
            result.setdefault(path, ("\n".join(output) + "\n").encode())
    return result


def unpack_capture(archive: Path) -> MachineCapture:
    """Read a capture or bundle in a tar file (also .gz, .xz, .bz2) or a zip file, without unpacking it to
    disk.

    Raises InputError for a file that is neither or is truncated.
    """
    unreadable: dict[str, str] = {}
    files: dict[str, bytes] = {}
    try:
        for name, data in read_members(archive):
            files[name] = data
            if len(files) > FILES or sum(map(len, files.values())) > TOTAL_BYTES:
                unreadable[name] = (
                    f"omitted with all that follows: more than {FILES} files or {TOTAL_BYTES >> 20} MiB"
                )
                break
    except OSError as error:
        raise input_files.make_read_error(archive, error) from error
    except tarfile.ReadError as error:
        if "could not be opened" not in str(error):
            raise InputError(f"{archive}: damaged or truncated: {error}", next="fetch it again") from error
        raise InputError(
            f"{archive}: not a tar or zip file", next="--from a folder, or the archive of one"
        ) from None
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{archive}: damaged or truncated: {error}", next="fetch it again") from error
    return _build_capture(files, unreadable, archive)


def _build_capture(files: dict[str, bytes], unreadable: dict[str, str], archive: Path) -> MachineCapture:
    """Create a capture from an archive's files. The capture is the topmost folder with capture.json, proc/version,
    ...
    """
    for mark in (INDEX, "proc/version", "kernel.log", "etc/os-release", "lspci.txt", SYSFS):
        index = sorted((name for name in files if name == mark or name.endswith(f"/{mark}")), key=len)
        if index:
            top = index[0].removesuffix(mark)
            inside = {name.removeprefix(top): data for name, data in files.items() if name.startswith(top)}
            unreadable |= _parse_reasons(inside.pop(INDEX, b"").decode(errors="replace"), archive)
            return MachineCapture(with_grep_output(inside), unreadable)
    raise InputError(
        f"{archive}: not a capture of a machine", next="docs/doctor.md describes the contents of a capture"
    )


def _walk_folder(folder: Path, top: Path, unreadable: dict[str, str]) -> list[Path]:
    """Return the files below the folder, in order. Links are not followed, because captures are untrusted."""
    paths: list[Path] = []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        unreadable[folder.relative_to(top).as_posix()] = error.strerror or str(error)
        return paths
    for entry in entries:
        if entry.is_symlink():
            unreadable[entry.relative_to(top).as_posix()] = "a link, not followed"
        elif entry.is_dir():
            paths += _walk_folder(entry, top, unreadable)
        elif entry.is_file():
            paths.append(entry)
    return paths


def _read_index(path: Path) -> dict[str, str]:
    """Return the files that a capture could not read, with reasons. A capture made by hand has no index."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {INDEX: error.strerror or str(error)}
    return _parse_reasons(text, path)


def _parse_reasons(text: str, path: Path) -> dict[str, str]:
    if not text:
        return {}
    try:
        index = json.loads(text)
    except ValueError as error:
        raise InputError(
            f"{path}: not JSON: {error}", next="capture again, or delete it: it is optional"
        ) from None
    schema = index.get("schema") if isinstance(index, dict) else None
    if schema != SCHEMA:
        raise InputError(f"{path}: schema {schema!r}, but this version reads {SCHEMA}", next="use a newer zinc-rt")
    reasons = index.get("unreadable")
    return {str(name): str(reason) for name, reason in reasons.items()} if isinstance(reasons, dict) else {}


def _safe_name(name: str) -> str | None:
    pure = PurePosixPath(name)
    return None if not name or pure.is_absolute() or ".." in pure.parts else name


def capture(root: Path = Path("/"), *, ioctls: bool = False, hung: bool = False) -> MachineCapture:
    """Capture a machine: files below `root` and, if that is this machine's own root, the output of its
    programs.

    Nothing is written, no queue is opened, and a suspended GPU is not woken. `ioctls`: also query open device
    nodes. `hung`: also take two samples, 3 s apart, that show whether the GPU advances.
    """
    files, unreadable = gather_files(root, ioctls=ioctls, sample_hung=hung)
    return MachineCapture(files, unreadable)
