"""A chip of a known generation is a row: docs/extending.md's is decoded, linted, found and refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from extending import ExtendedTree, extend_tree

SECTION = "A chip of a known generation"
COMMAND = "import sys; from zinc_rt.cli.main import main; sys.exit(main())"
# A code object's header alone: ELF64, little-endian, EM_AMDGPU 224, no sections.
CODE = """
import struct

from zinc_rt.isa import decode, target_of
from zinc_rt.isa.elf import read_elf

header = struct.pack("<16sHHIQQQIHHHHHH", b"\\x7fELF\\x02\\x01", 3, 224, 1, 0, 0, 0, 0x7F, 64, 0, 0, 64, 0, 0)
assert read_elf(header, "kernel.co").arch == "gfx1199"
code = bytes.fromhex("050003d501050200")
for wave in (32, 64):
    mine, like = (decode(code, 0, target_of(name, wave)) for name in ("gfx1199", "gfx1102"))
    assert mine is not None and mine.text == like.text
"""
CONTAINER = """
from dataclasses import replace

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.gfx1201.table import load
from zinc_rt.kernels.zrt import read_zrt, write_zrt

data = write_zrt(replace(load("add"), target="gfx1199"))
try:
    read_zrt(data, "add.zrt")
except UnsupportedError as error:
    assert "gpu_target is 0x5 (gfx1199); this build supports gfx1201, gfx1200" in str(error), error
else:
    raise AssertionError("read")
"""
CARD = """
import sys
from dataclasses import replace

from zinc_rt.backends.amd import t1
from zinc_rt.backends.amd.open import find_first_gpu
from zinc_rt.backends.spec import Host
from zinc_rt.cli.main import main
from zinc_rt.doctor.chips import is_supported
from zinc_rt.kmd.discover import find_gpus
from zinc_rt.pm4 import Generation, generation_of
from zinc_rt.sim import chips
from zinc_rt.sim.in_process import SimDriver

chips.CHIPS["rx7999"] = replace(chips.CHIPS["rx7900xtx"], key="rx7999", gfx="gfx1199", target=110909)
driver = SimDriver(chip="rx7999")
node = find_first_gpu(driver)
assert node.arch == "gfx1199" and node.memory_bytes_per_second > 1e11
assert generation_of(node.arch) is Generation.GFX11 and is_supported(node.arch)
found = t1.probe(Host(1, driver, find_gpus(driver).gpus))
assert not found.usable and "the driver is ready" in found.why and "kernels to run models with" in found.why, found
driver.close_all()
sys.argv[1:] = ["run", "-m", sys.argv[1], "--device", "sim:rx7999", "--tokens", "1,2"]
sys.exit(main())
"""


@pytest.fixture(scope="module")
def extended_tree(tmp_path_factory: pytest.TempPathFactory) -> ExtendedTree:
    return extend_tree(SECTION, tmp_path_factory.mktemp("chip"))


@pytest.mark.rest
def test_new_chip_is_one_row(extended_tree: ExtendedTree) -> None:
    assert extended_tree.files == ("zinc_rt/isa/target.py",)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("program", [CODE, CONTAINER], ids=["code", "container"])
def test_code_and_containers_recognise_new_chip_by_its_row(extended_tree: ExtendedTree, program: str) -> None:
    result = extended_tree.interpreter_in("-c", program)
    assert result.returncode == 0, result.stderr


@pytest.mark.rest
def test_commands_decode_new_chip_and_report_missing_features(extended_tree: ExtendedTree, tmp_path: Path) -> None:
    code, packets = tmp_path / "code.txt", tmp_path / "packets.txt"
    code.write_text("050003d501050200")
    packets.write_text("c0004600 00000407")
    shown = {
        arch: extended_tree.interpreter_in("-c", COMMAND, "isa", "disasm", "--hex", str(code), "--arch", arch)
        for arch in ("gfx1199", "gfx1102")
    }
    mine, like = (shown[arch].stdout.replace(arch, "") for arch in ("gfx1199", "gfx1102"))
    assert shown["gfx1199"].returncode == 0 and mine == like and "v_" in mine
    linted = extended_tree.interpreter_in("-c", COMMAND, "isa", "lint", "--hex", str(code), "--arch", "gfx1199")
    assert linted.returncode == 1 and "without s_endpgm" in linted.stdout, linted.stdout + linted.stderr
    checked = extended_tree.interpreter_in(
        "-c", COMMAND, "pm4", "decode", str(packets), "--hex", "--lint", "--arch", "gfx1199"
    )
    assert checked.returncode == 0 and "EVENT_WRITE" in checked.stdout, checked.stdout + checked.stderr


@pytest.mark.rest
def test_card_with_new_chip_is_found_and_has_no_kernels(extended_tree: ExtendedTree, qwen3: str) -> None:
    result = extended_tree.interpreter_in("-c", CARD, qwen3)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "no kernels for gfx1199 in this build\n  next: --device sim:gfx1100 or sim:gfx1101" in result.stderr
