"""Read files from a folder, a .tar.gz or a .tar.zst that is not trusted."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import zstandard

from zinc_rt.host.errors import InputError, OutputError, UsageError
from zinc_rt.host.files import write_atomically
from zinc_rt.host.input_files import make_read_error

SUFFIXES = (".tar.gz", ".tgz", ".tar.zst")
MOST_BYTES = 32 << 20  # unpacked: sixteen times what a bundle may have
MOST_FILES = 4000
_NEXT = "recreate it: zinc-rt bundle -o FILE.tar.gz"


def is_archive(path: Path) -> bool:
    return path.name.endswith(SUFFIXES)


def read_archive(path: Path) -> dict[str, bytes]:
    """Read every file by its path inside. Nothing is unpacked to disk. Raises InputError with one
    sentence."""
    tar = _read_archive(path)
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    raise _make_archive_error(path, f"{member.name!r} is not a regular file")
                name = check_member_name(member.name, path)
                if name in files:
                    raise _make_archive_error(path, f"{name!r} is there twice")
                if len(files) == MOST_FILES:
                    raise _make_archive_error(path, f"more than {MOST_FILES} files")
                content = archive.extractfile(member)
                files[name] = content.read() if content is not None else b""
                if len(files[name]) != member.size:
                    raise _make_archive_error(path, f"{name!r} is cut short")
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, EOFError) as error:
        raise _make_archive_error(path, f"damaged ({error})") from error
    return _strip_top_folder(files)


def read_listed(folder: Path, names: list[str]) -> dict[str, bytes]:
    """Read the given files of a folder. Links are rejected, because they could expose files of the reader."""
    files, total = {}, 0
    for name in names:
        path = folder / check_member_name(name, folder)
        if any(part.is_symlink() for part in (path, *list(path.parents)[: len(PurePosixPath(name).parts) - 1])):
            raise _make_archive_error(folder, f"{name!r} is a link")
        try:
            total += path.stat().st_size
            if total > MOST_BYTES:
                raise _make_archive_error(folder, f"more than {MOST_BYTES >> 20} MiB")
            files[name] = path.read_bytes()
        except OSError as error:
            raise _make_archive_error(folder, f"{name!r} cannot be read: {error.strerror}") from error
    return files


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Write an archive of the type given by its name, with reproducible bytes. Raises OutputError."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(
                f"{_top_folder_name(path)}/{name}"
            )  # no owner and no time: both would identify a person
            member.size, member.mode = len(files[name]), 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    if path.name.endswith(".zst"):
        packed = zstandard.ZstdCompressor(level=10).compress(tar.getvalue())
    else:
        packed = gzip.compress(tar.getvalue(), mtime=0)
    write_atomically(path, lambda file: file.write(packed))


def write_folder(folder: Path, files: Mapping[str, bytes], earlier: list[str]) -> None:
    """Write the files. `earlier`: files of the previous bundle in the folder. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in earlier:
            (folder / name).unlink(missing_ok=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error


def check_member_name(name: str, where: Path) -> str:
    """Return `name` if it does not leave the archive. Raises InputError otherwise."""
    path = PurePosixPath(name)
    if (
        not name
        or path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or name[1:2] == ":"
        or len(name) > 400
        or any(ord(character) < 32 for character in name)
    ):
        raise _make_archive_error(where, f"{name[:80]!r} would lie outside")
    return path.as_posix()


def _read_archive(path: Path) -> bytes:
    """Decompress the tar, up to the size limit of a bundle, whatever size it claims."""
    if not is_archive(path):
        raise UsageError(f"{path}: not a bundle", next=f"a folder, or a file that ends in {', '.join(SUFFIXES)}")
    try:
        with path.open("rb") as file:
            if path.name.endswith(".zst"):
                with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file) as reader:
                    data = reader.read(MOST_BYTES + 1)
            else:
                with gzip.GzipFile(fileobj=file) as unzipped:
                    data = unzipped.read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise _make_archive_error(path, f"damaged or cut short ({error})") from error
    except (OSError, ValueError) as error:
        raise make_read_error(path, error) from error
    if len(data) > MOST_BYTES:
        raise _make_archive_error(path, f"unpacks to more than {MOST_BYTES >> 20} MiB")
    return data


def _strip_top_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    """Remove the top folder, which archives have so that unpacking creates one folder only."""
    tops = {name.partition("/")[0] for name in files}
    if len(tops) == 1 and all("/" in name for name in files):
        return {name.partition("/")[2]: content for name, content in files.items()}
    return files


def _top_folder_name(path: Path) -> str:
    suffix = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), "")
    return path.name.removesuffix(suffix) or "bundle"


def _make_archive_error(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: not a bundle: {reason}", next=_NEXT)
