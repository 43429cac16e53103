"""An archive of kernel containers: one .tar.xz, a twentieth of the size of the files."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error

ARCHIVE = "built.tar.xz"  # in a set's folder


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the containers of an archive by kernel name. Raise InputError if it cannot be read."""
    try:
        with tarfile.open(fileobj=BytesIO(path.read_bytes())) as archive:
            members = [(member.name, archive.extractfile(member)) for member in archive]
            return {name.removesuffix(".zrt"): file.read() for name, file in members if file is not None}
    except OSError as error:
        raise make_read_error(path, error) from None
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{path}: damaged archive: {error}", next="zinc-rt asm --all") from None


def pack_archive(containers: Mapping[str, bytes]) -> bytes:
    """Return the bytes of an archive, which depend only on the containers."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for name, data in sorted(containers.items()):
            member = tarfile.TarInfo(f"{name}.zrt")
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    return packed.getvalue()
