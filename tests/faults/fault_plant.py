"""A copy of the tree, and faults planted in it: text by an anchor that is there once, files by their bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from fault_row import Edit, Fault

ROOT = Path(__file__).resolve().parent.parent.parent
KERNELS = Path("zinc_rt/kernels/gfx1201")
LEFT_OUT = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "tests", "docs", "zinc-rt-hangs", "zinc-rt-nightly"
)
_INCLUDE = re.compile(r'^\s*\.include\s+"([^"]+)"', re.MULTILINE)


class CannotPlant(RuntimeError):
    """The fault does not apply to this tree, because the corpus is out of date."""


def copy_tree(target: Path) -> Path:
    """Copy the files that the package needs, with bytecode, so that only files changed by a fault are
    recompiled.
    """
    shutil.copytree(ROOT, target, symlinks=True, ignore=LEFT_OUT)
    return target


def plant_fault(fault: Fault, tree: Path) -> None:
    """Apply every edit and rebuild the affected kernels. Raises CannotPlant if an edit does not apply."""
    stale: dict[Path, None] = {}
    for edit in fault.edits:
        PLANTERS[edit.kind](edit, tree)
        if edit.file.endswith((".s", ".inc")):
            stale.update(dict.fromkeys(dependent_kernels(tree, Path(edit.file))))
    if stale:
        assemble_sources(tree, stale)


def reason_not_applicable(fault: Fault, tree: Path = ROOT) -> str:
    """Return the reason if the fault cannot be planted in this tree, else "". Writes nothing."""
    for edit in fault.edits:
        path = tree / str(edit.options.get("copy", edit.file))
        if not path.is_file():
            return f"{path.relative_to(tree)} is not there"
        if edit.kind == "text":
            count = path.read_text(encoding="utf-8").count(str(edit.options["find"]))
            if count != 1:
                return f"{edit.file}: the anchor is there {count} times: {edit.options['find']!r}"
            if edit.options["find"] == edit.options["replace"]:
                return f"{edit.file}: the replacement changes nothing"
        if edit.kind == "bytes" and (count := path.read_bytes().count(str(edit.options["after"]).encode())) != 1:
            return f"{edit.file}: {edit.options['after']} is there {count} times"
        if edit.kind == "tensor" and edit.options["tensor"] not in tensor_ranges(path):
            return f"{edit.file}: no tensor {edit.options['tensor']}"
        if edit.kind == "array" and edit.options["array"] not in np.load(path).files:
            return f"{edit.file}: no array {edit.options['array']}"
    return ""


# --- the kinds of edit --------------------------------------------------------------------------------------


def edit_text(edit: Edit, tree: Path) -> None:
    path = tree / edit.file
    text = path.read_text(encoding="utf-8")
    if text.count(str(edit.options["find"])) != 1:
        raise CannotPlant(f"{edit.file}: the anchor occurs {text.count(str(edit.options['find']))} times")
    path.write_text(text.replace(str(edit.options["find"]), str(edit.options["replace"])), encoding="utf-8")


def edit_bytes(edit: Edit, tree: Path) -> None:
    """Overwrite bytes with `write` (hex), `skip` bytes after the text `after`."""
    path = copy_if_asked(edit, tree)
    content = bytearray(path.read_bytes())
    after = str(edit.options["after"]).encode()
    if content.count(after) != 1:
        raise CannotPlant(f"{edit.file}: {edit.options['after']} occurs {content.count(after)} times")
    overwrite(content, content.index(after) + len(after) + int(edit.options["skip"]), edit)
    path.write_bytes(content)


def edit_tensor(edit: Edit, tree: Path) -> None:
    """Overwrite bytes of a tensor with `write` (hex) at byte `at`, or exchange its bytes with those of the tensor
    `swap`, which has the same size.
    """
    path = copy_if_asked(edit, tree)
    places = tensor_ranges(path)
    content = bytearray(path.read_bytes())
    start, size = places[str(edit.options["tensor"])]
    if "swap" in edit.options:
        other, other_size = places[str(edit.options["swap"])]
        if size != other_size:
            raise CannotPlant(f"{edit.file}: {edit.options['swap']} has a different size")
        mine, theirs = content[start : start + size], content[other : other + size]
        content[start : start + size], content[other : other + size] = theirs, mine
    else:
        overwrite(content, start + int(edit.options["at"]), edit)
    path.write_bytes(content)


def truncate_file(edit: Edit, tree: Path) -> None:
    """Truncate the file to `keep` percent of its size."""
    path = copy_if_asked(edit, tree)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * int(edit.options["keep"]) // 100])


def edit_array(edit: Edit, tree: Path) -> None:
    """Change a number at index `at` of an array in an .npz: set it to `write`, or `add` add to it."""
    path = copy_if_asked(edit, tree)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    array = arrays[str(edit.options["array"])]
    array.reshape(-1)[int(edit.options["at"])] = edit.options["write"]
    np.savez_compressed(path, **arrays)


PLANTERS = {
    "text": edit_text,
    "bytes": edit_bytes,
    "tensor": edit_tensor,
    "cut": truncate_file,
    "array": edit_array,
}


def overwrite(content: bytearray, offset: int, edit: Edit) -> None:
    new = bytes.fromhex(str(edit.options["write"]))
    if content[offset : offset + len(new)] == new:
        raise CannotPlant(f"{edit.file}: the file already contains these bytes")
    content[offset : offset + len(new)] = new


def copy_if_asked(edit: Edit, tree: Path) -> Path:
    """Return the file to change, which is a copy of another file if the edit says so."""
    path = tree / edit.file
    if "copy" in edit.options and not path.exists():
        shutil.copyfile(tree / str(edit.options["copy"]), path)
    return path


def tensor_ranges(path: Path) -> dict[str, tuple[int, int]]:
    """Return the offset and size of each tensor's bytes in a GGUF file."""
    from gguf import GGUFReader

    return {tensor.name: (int(tensor.data_offset), int(tensor.n_bytes)) for tensor in GGUFReader(path).tensors}


# --- kernels ------------------------------------------------------------------------------------------------


def dependent_kernels(tree: Path, source: Path) -> Iterator[Path]:
    """Return the kernels that depend on a source or an include."""
    if source.suffix == ".s":
        yield source
        return
    folder = tree / KERNELS / "include"
    reached = {source.name}
    while True:
        more = {path.name for path in folder.glob("*.inc") if reached & included_files(path)} - reached
        if not more:
            break
        reached |= more
    sources = sorted((tree / KERNELS).glob("*.s"))
    yield from (KERNELS / path.name for path in sources if reached & included_files(path))


def included_files(path: Path) -> set[str]:
    return set(_INCLUDE.findall(path.read_text(encoding="utf-8")))


def assemble_sources(tree: Path, sources: Iterable[Path]) -> None:
    for source in sources:
        command = [sys.executable, "-m", "zinc_rt.cli.asm", str(source)]
        result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if result.returncode:
            raise CannotPlant(f"{source}: {result.stderr.strip()[-500:]}")
