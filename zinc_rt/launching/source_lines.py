"""The source line of each instruction of a code object, from its DWARF line tables."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import InputError
from zinc_rt.isa.elf import read_section_contents


@dataclass(frozen=True, slots=True)
class SourceLines:
    """Source positions by image offset. `starts` is sorted; the code from starts[i] belongs to lines[i], which is
    FILE:LINE, or "" after the end of a function. `missing`: the reason if there are none although the file has a
    line table.
    """

    starts: tuple[int, ...] = ()
    lines: tuple[str, ...] = ()
    missing: str = ""

    def at(self, offset: int) -> str:
        """Return FILE:LINE of the instruction at this image offset, or "" if it is not known."""
        index = bisect_right(self.starts, offset) - 1
        return self.lines[index] if index >= 0 else ""


NO_LINES = SourceLines()


def read_source_lines(data: bytes, source: str) -> SourceLines:
    """Read the line tables of an ELF code object. Raise InputError if they are damaged."""
    try:
        if not read_section_contents(data, source).get(".debug_line"):
            return NO_LINES
    except InputError:
        return NO_LINES  # no section table: stripped
    if find_spec("elftools") is None:
        return SourceLines(missing="source lines need the package pyelftools: pip install 'zinc-rt[launch]'")
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.elf.elffile import ELFFile

    try:
        rows = dict(_iterate_rows(ELFFile(io.BytesIO(data)).get_dwarf_info()))
    except (DWARFError, ELFError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source}: the line tables are damaged: {error!r}") from None
    starts = tuple(sorted(rows))
    return SourceLines(starts, tuple(rows[start] for start in starts))


def _iterate_rows(dwarf: Any) -> Iterator[tuple[int, str]]:
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        attribute = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
        names = _list_files(
            program.header, attribute.value.decode("utf-8", "replace") if attribute is not None else ""
        )
        line = ""
        for entry in program.get_entries():
            state = entry.state
            if state is None:
                continue
            if state.line:  # 0: code without a line of its own stays with the line before
                line = f"{names.get(state.file, '?')}:{state.line}"
            yield state.address, "" if state.end_sequence else line


def _list_files(header: Any, compiled_in: str) -> dict[int, str]:
    """Return the shown name of each file number. DWARF 5 counts files and folders from 0, earlier versions from 1,
    with 0 for the folder of compilation."""
    first = 0 if header.version >= 5 else 1
    folders = [_decode_name(item) for item in header.include_directory]
    folders = folders if first == 0 else [compiled_in, *folders]
    names = {}
    for number, item in enumerate(header.file_entry, first):
        folder = folders[item.dir_index] if item.dir_index < len(folders) else ""
        names[number] = shorten_path(Path(compiled_in) / folder / _decode_name(item.name))
    return names


def _decode_name(name: bytes | str) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def shorten_path(path: Path) -> str:
    """Return the path relative to the current folder, if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
