"""Parts of a split GGUF model: names, and the checks that they belong together.

llama-gguf-split and the gguf package write part n of N as NAME-0000n-of-0000N.gguf with the keys split.no (from
0), split.count and split.tensors.count (of the whole model). The first part has the model's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from zinc_rt.host.errors import InputError

COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"
MAX_PARTS = 99_999  # the name has five digits
_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_AGAIN = "download every part again, from one repository and one revision"


def split_name(path: Path) -> tuple[str, int, int] | None:
    """Return (stem, number from 1, count) of a part's file name, None for another name."""
    match = _NAME.fullmatch(path.name)
    return (match["stem"], int(match["number"]), int(match["count"])) if match else None


def model_stem(path: Path) -> str:
    """Return the model's file name without .gguf and without the number of a part."""
    name = split_name(path)
    return name[0] if name else path.name.removesuffix(".gguf")


def part_name(stem: str, number: int, count: int) -> str:
    return f"{stem}-{number:05d}-of-{count:05d}.gguf"


def is_split(metadata: Mapping[str, object]) -> bool:
    """Return whether a header is that of a part. A joined model has split.count 0."""
    count = metadata.get(COUNT, 1)
    return isinstance(count, int) and count > 1


def part_paths(path: Path, metadata: Mapping[str, object]) -> list[Path]:
    """Return the paths of all parts, given the path and the header of one. Raise InputError for a name that
    contradicts the header, and for missing parts, with their names."""
    count, number = _integer(path, metadata, COUNT), _integer(path, metadata, NUMBER) + 1
    if not 1 <= number <= count <= MAX_PARTS:
        raise InputError(f"{path}: {NUMBER} is {number - 1} and {COUNT} is {count}", next=_AGAIN)
    name = split_name(path)
    if name is None or name[2] != count:
        raise InputError(
            f"{path}: part {number} of {count} by its header, which its name does not say",
            next=f"restore the name that the file was published with: ...-{number:05d}-of-{count:05d}.gguf",
        )
    _check_number(path, name[1], number, count)
    paths = [path.with_name(part_name(name[0], index, count)) for index in range(1, count + 1)]
    if missing := [item.name for item in paths if not item.exists()]:
        shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        raise InputError(
            f"{path}: {len(missing)} of {count} parts missing in this folder: {shown}",
            next="download them into the same folder (zinc-rt pull), or pass a complete model",
        )
    return paths


def check_parts(
    paths: Sequence[Path], headers: Sequence[Mapping[str, object]], tensors: Sequence[Sequence[str]]
) -> None:
    """Check the parts of one model, in order: their metadata and the names of their tensors. Raise InputError that
    names a part in another order, of another model or of another split."""
    first, total = headers[0], _integer(paths[0], headers[0], TENSORS)
    owners: dict[str, Path] = {}
    for index, (path, metadata) in enumerate(zip(paths, headers, strict=True)):
        if not is_split(metadata):
            raise InputError(f"{path}: a model that is not split, in place of part {index + 1}", next=_AGAIN)
        _check_number(path, index + 1, _integer(path, metadata, NUMBER) + 1, len(paths))
        for key in sorted(set(metadata) & set(first) - {NUMBER}):
            if not _equal(metadata[key], first[key]):
                raise InputError(
                    f"{path}: a part of another model or split: {key} is {_short(metadata[key])}, "
                    f"{_short(first[key])} in {paths[0].name}",
                    next=_AGAIN,
                )
        for name in tensors[index]:
            if name in owners:
                raise InputError(
                    f"{path}: a part of another model or split: tensor {name} is also in {owners[name].name}",
                    next=_AGAIN,
                )
            owners[name] = path
    if len(owners) != total:
        raise InputError(
            f"{paths[0]}: the {len(paths)} parts have {len(owners)} tensors, {TENSORS} is {total}: a part belongs "
            "to another model or split",
            next=_AGAIN,
        )


def _check_number(path: Path, by_name: int, by_header: int, count: int) -> None:
    if by_name != by_header:
        raise InputError(
            f"{path}: part {by_name} of {count} by its name, part {by_header} by its header",
            next="the parts were renamed or swapped: restore their names, or download them again",
        )


def _integer(path: Path, metadata: Mapping[str, object], key: str) -> int:
    value = metadata.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{path}: a part of a split model in which {key} is {_short(value)}", next=_AGAIN)
    return value


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(np.asarray(a), np.asarray(b))
    return type(a) is type(b) and a == b


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
