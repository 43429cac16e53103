"""RADV without a card: the committed containers are what it gives, and what it cannot do is said in a sentence.

Skipped where there is no RADV that knows the chip; Mesa 25.0.7's bytes are the committed ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zinc_rt.backends.vulkan.radv import RadvCompiled, compile_modules, find_driver
from zinc_rt.cli.vulkan import main
from zinc_rt.host.errors import InputError, NothingRan, UsageError
from zinc_rt.kernels.radv.container import COMPILER, build_container
from zinc_rt.kernels.radv.table import BUILT, load
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.kernels.zrt import write_zrt

SOME = ("add", "rms_norm", "step_grids")


@pytest.fixture(scope="module")
def compiled_modules() -> RadvCompiled:
    try:
        return compile_modules({name: KERNELS.module(name) for name in SOME})
    except NothingRan as error:
        pytest.skip(error.message)
    except InputError as error:
        if "Unknown family" not in str(error):
            raise
        pytest.skip(f"the RADV here is older than the chip: {error.message}")


@pytest.mark.parametrize("name", SOME)
def test_committed_container_matches_radv_output(compiled_modules: RadvCompiled, name: str) -> None:
    result = build_container(name, KERNELS.module(name), compiled_modules.caches[name], compiled_modules.mesa)
    if load(name).compiler != f"{COMPILER}{compiled_modules.mesa}":
        pytest.skip(f"the committed ones are of {load(name).compiler}, this is Mesa {compiled_modules.mesa}")
    assert write_zrt(result) == (BUILT / f"{name}.zrt").read_bytes(), "zinc-rt vulkan compile --radv gfx1201"


def test_invalid_module_is_reported(compiled_modules: RadvCompiled) -> None:
    with pytest.raises(InputError, match=r"kernel odd: RADV .* did not compile it"):
        compile_modules({"odd": KERNELS.module("add")[:40]})


def test_command_writes_to_the_requested_path(
    compiled_modules: RadvCompiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "add", "--radv", "gfx1201", "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "PASS  1 of 1 kernels are compiled" in out and f"RADV of Mesa {compiled_modules.mesa}" in out
    assert [path.name for path in tmp_path.iterdir()] == ["add.zrt"]


# --- without a driver ---


def test_missing_driver_error_gives_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VK_DRIVER_FILES", str(tmp_path / "nowhere.json"))
    with pytest.raises(NothingRan, match=r"RADV not found(.|\n)*--driver FILE names"):
        find_driver()
    assert main(["compile", "add", "--radv", "gfx1201", "-o", str(tmp_path)]) == 77


def test_invalid_explicit_driver_is_rejected(tmp_path: Path) -> None:
    manifest = tmp_path / "odd.json"
    manifest.write_text(json.dumps({"ICD": {"library_path": str(tmp_path / "none.so")}}))
    with pytest.raises(InputError, match="its library cannot be loaded"):
        find_driver(str(manifest))
    with pytest.raises(InputError, match="no such file"):
        find_driver(str(tmp_path / "none.so"))
    odd = tmp_path / "libvulkan_radeon.so"
    odd.write_bytes(b"no library")
    with pytest.raises(InputError, match="did not compile it"):
        compile_modules({"add": KERNELS.module("add")}, driver=str(odd))


def test_invalid_arguments_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="--radv gfx1151: expected one of gfx1100, gfx1201"):
        compile_modules({}, "gfx1151")
    for words, says in {
        ("nosuch", "--radv", "gfx1201"): "no module nosuch",
        ("add", "-o", "x"): "-o and --driver need --radv",
        ("add", "--radv", "gfx1201", "-o", "/nowhere"): "no such folder",
        ("no.spv", "--radv", "gfx1201"): "no such file",
    }.items():
        assert main(["compile", *words]) == 2
        assert says in capsys.readouterr().err
