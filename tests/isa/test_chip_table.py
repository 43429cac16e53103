"""The table of chips in isa/target.py: what other tables derive from it, and that no other code compares names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from zinc_rt.backends import registry
from zinc_rt.doctor import chips as doctor_chips
from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.host.packages import HARNESS
from zinc_rt.isa.target import CHIPS, DEFAULT_ARCH, TARGETS, make_default_target, parse_major_version, target_of
from zinc_rt.kernels import sets, zrt
from zinc_rt.kernels.sets import SETS
from zinc_rt.kmd.discover import PACKETS_KNOWN
from zinc_rt.kmd.topology import TopologyNode
from zinc_rt.pm4.generation import ARCHITECTURES, Generation, generation_of
from zinc_rt.sim import chips as simulated_chips

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = (  # files whose subject is a chip, a card of it or its kernels
    "zinc_rt/isa/target.py", "zinc_rt/sim/chips.py", "doctor/chips.py", "zinc_rt/kernels/sets.py",
    "zinc_rt/kernels/gfx1201/table.py", "zinc_rt/kernels/gfx1100/table.py", "zinc_rt/kernels/radv/table.py",
    "zinc_rt/kernels/radv/gfx1100.py",
    "zinc_rt/backends/vulkan/radv.py",  # Mesa's names of chips
    "perf/triton_kernels/corpus.py",  # a program of its own, without zinc_rt
    "zinc_rt/kmd/userq_availability.py",  # what amdgpu does, by versions of IP blocks
)  # fmt: skip
# A chip's name with nothing around it but what a flag or triple has: prose that mentions one has spaces.
NAME = re.compile(r"[^\s/]*gfx(\d{4}|9\d\w|1\d-generic)[^\s/]*")
FAMILY = re.compile(r"gfx\d{1,2}(-generic)?|-generic")
MATCHING = ("startswith", "endswith", "removeprefix", "removesuffix", "get")


def docstring_nodes(tree: ast.Module) -> set[ast.AST]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, owners)]
    return {body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)}


def string_values(node: ast.AST) -> Iterator[str]:
    return (
        node.value for node in ast.walk(node) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def compared_values(tree: ast.Module) -> Iterator[ast.AST]:
    """What is compared, matched or looked up."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Compare, ast.MatchValue)):
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MATCHING:
            yield from node.args
        elif isinstance(node, ast.Subscript):
            yield node.slice


def chip_versions(tree: ast.Module) -> set[str]:
    """Chips by number: (11, 5, 1) is gfx1151."""
    triples = (ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Tuple) and len(node.elts) == 3)
    return {text for text in triples if re.fullmatch(r"\(1[12], \d, \d\)", text)}


def chip_names(source: str) -> set[str]:
    """Return the chips that code names or distinguishes, except in docstrings and comments."""
    tree = ast.parse(source)
    apart = docstring_nodes(tree)
    named = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in apart
    }
    result = {text for text in named if NAME.fullmatch(text)}
    return (
        result
        | {text for node in compared_values(tree) for text in string_values(node) if FAMILY.fullmatch(text)}
        | chip_versions(tree)
    )


@pytest.mark.rest
def test_only_chip_tables_contain_chip_names() -> None:
    folders = [ROOT / "zinc_rt", *(ROOT / name for name in HARNESS)]
    files = {path for folder in folders for path in folder.rglob("*.py") if "__pycache__" not in path.parts}
    assert len(files) > 500
    wrong = {}
    for path in sorted(files):
        where = path.relative_to(ROOT).as_posix()
        if where not in TABLES and (result := chip_names(path.read_text(encoding="utf-8"))):
            wrong[where] = result
    assert not wrong


@pytest.mark.parametrize(
    "code",
    [
        'x = device.arch != "gfx1201"', 'target_of("gfx1201")', 'x = arch.startswith("gfx12")', 'x = ("gfx1103",)',
        'x = {"gfx1100": 1}', 'x = arch.endswith("-generic")', 'run("-mcpu=gfx1201")', 'x = f"{a}" in ("gfx90a",)',
        'x = node.generation in {(11, 5, 1)}',
    ],
)  # fmt: skip
def test_chip_name_in_code_is_detected(code: str) -> None:
    assert chip_names(code)


@pytest.mark.parametrize("code", ['"""for gfx1201"""', 'x = "compiled for gfx1201 cards"', 'x = "gfx12"'])
def test_prose_is_not_mistaken_for_chip_name(code: str) -> None:
    assert not chip_names(code)


def test_file_format_numbers_map_to_one_chip() -> None:
    for column in ("elf_machine", "container"):
        numbers = [number for row in TARGETS.values() if (number := getattr(row, column))]
        assert numbers and len(numbers) == len(set(numbers)), column


def test_packet_support_is_derived_from_chip_row() -> None:
    assert list(ARCHITECTURES) == [chip.name for chip in CHIPS]
    assert all(generation_of(chip.name) == Generation(chip.generation) for chip in CHIPS)
    assert {chip.generation for chip in CHIPS} == {*PACKETS_KNOWN}
    assert all(
        parse_major_version(chip.name) == chip.generation and doctor_chips.is_supported(chip.name)
        for chip in CHIPS
    )
    with pytest.raises(UsageError, match="no PM4 encoders"):
        generation_of("gfx12-generic")


def test_kernel_support_is_derived_from_chip_row() -> None:
    with_kernels = [chip for chip in CHIPS if chip.kernels]
    assert with_kernels and {chip.kernels for chip in with_kernels} <= {*SETS} & {*registry.AMD_SETS}
    containers, names = set(zrt.BUILT_TARGETS), {chip.name for chip in with_kernels}
    assert {chip.kernels for chip in with_kernels} <= containers <= names, "numbers in a .zrt header"
    for chip in CHIPS:
        kernels = sets.find_kernel_set(sets.find_code_chip(chip.name))
        assert (kernels is not None) == bool(chip.kernels), chip.name
        assert kernels is None or TARGETS[kernels.target].generation == chip.generation
    assert make_default_target().kernels == DEFAULT_ARCH


def test_chips_without_decoder_have_no_code_target() -> None:
    assert not [name for name, row in TARGETS.items() if not row.has_decoder]
    for name, row in TARGETS.items():
        if row.has_decoder:
            assert target_of(name, 64).with_wave(32) == target_of(name)
        else:
            assert not row.kernels
            with pytest.raises(UnsupportedError, match="its instructions are not supported"):
                target_of(name)


def test_simulated_cards_are_in_chip_table() -> None:
    for card in simulated_chips.CHIPS.values():
        node = TopologyNode(1, 7, "", {"gfx_target_version": card.target})
        assert node.arch == card.gfx == card.isa.name and not card.isa.is_generic
        assert card.isa.version == node.generation and card.major == card.isa.generation
    assert all(simulated_chips.find_chip(name).gfx == name for name in simulated_chips.ALIASES)
