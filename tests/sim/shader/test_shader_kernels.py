"""Kernels in memory and on disk: what makes another one, who compiles, many at once."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from shader_launch import ENDPGM, REVERSE, STORE_IDS
from support import Counts

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa import target_of
from zinc_rt.isa.target import make_default_target
from zinc_rt.kernels.gfx1201.table import load, names
from zinc_rt.sim.interfaces import AccessKind, Fault
from zinc_rt.sim.shader.emit.helpers import KernelModule, SharedHelpers
from zinc_rt.sim.shader.launch_setup import LaunchSetup
from zinc_rt.sim.shader.layout import Checks, KernelVariant
from zinc_rt.sim.shader.run import background, forms, helpers
from zinc_rt.sim.shader.run.compile_workers import prepare
from zinc_rt.sim.shader.run.forms import FormLibrary
from zinc_rt.sim.shader.run.kernels import (
    HOT_SECONDS,
    CompiledKernel,
    CompiledKernels,
    choose_variant,
    make_cache_key,
)
from zinc_rt.sim.shader.translate.fetched_code import fetch_code
from zinc_rt.sim.shader.translate.translation import translated_to_program

STORE = KernelVariant(STORE_IDS, make_default_target(), True, Checks("fast"), 8, 2)


def test_kernel_is_compiled_once_and_then_loaded_from_disk(tmp_path: Path) -> None:
    first, second = (CompiledKernels(ObjectCache(tmp_path)) for _ in range(2))
    kernel = first.of(STORE)
    assert first.of(STORE) is kernel and first.compiled == 1
    again = second.of(STORE)
    assert second.compiled == 0 and (again.sites, again.counts) == (kernel.sites, kernel.counts)


@pytest.mark.parametrize(
    "change",
    [
        {"code": ENDPGM},
        {"target": make_default_target(64)},
        {"target": target_of("gfx1100")},
        {"full": False},
        {"checks": Checks("full")},
        {"checks": Checks("fast", perturb=True)},
        {"vgprs": 16},
        {"user_sgprs": 3},
    ],
    ids=lambda change: "-".join(change),
)
def test_every_input_of_code_generation_changes_the_cache_key(change: dict[str, object]) -> None:
    assert make_cache_key(replace(STORE, **change)) != make_cache_key(STORE)  # type: ignore[arg-type]


def test_chips_of_one_generation_share_compiled_code() -> None:
    assert make_cache_key(replace(STORE, target=target_of("gfx1200"))) == make_cache_key(STORE)


def test_corrupt_file_is_recompiled(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    CompiledKernels(cache).of(STORE)
    path = cache.path(make_cache_key(STORE))
    path.write_bytes(path.read_bytes()[:-7])
    kernels = CompiledKernels(cache)
    kernels.of(STORE)
    assert kernels.compiled == 1 and cache.load(make_cache_key(STORE)) is not None


@pytest.mark.rest
def test_kernels_are_compiled_by_several_processes(tmp_path: Path) -> None:
    kernels = CompiledKernels(ObjectCache(tmp_path))
    wanted = [STORE, replace(STORE, code=ENDPGM), replace(STORE, code=REVERSE, vgprs=16), STORE]
    assert prepare(kernels, wanted, processes=2) == 3
    assert all(kernels.has(item) for item in wanted)
    for item in wanted:
        kernels.of(item)
    assert kernels.compiled == 0
    assert prepare(kernels, wanted) == 0


def optimise_kernel(kernels: CompiledKernels) -> CompiledKernel:
    """Return the kernel after it has run for long enough and its worker has finished."""
    kernels.of(STORE).seconds = HOT_SECONDS
    end = time.monotonic() + 60
    while not kernels._background.done(STORE) and time.monotonic() < end:
        time.sleep(0.02)
    return kernels.of(STORE)


def test_kernel_starts_as_quick_code_and_hot_one_is_optimised_elsewhere(tmp_path: Path) -> None:
    kernels = CompiledKernels(ObjectCache(tmp_path), quick=True)
    quick = kernels.of(STORE)
    assert quick.quick and kernels.of(STORE) is quick and not kernels.is_outdated(quick)
    assert not kernels.has(STORE), "prepare() would not compile it well"
    well = optimise_kernel(kernels)
    assert not well.quick and kernels.is_outdated(quick) and not kernels.is_outdated(well) and kernels.has(STORE)
    assert (well.sites, well.counts) == (quick.sites, quick.counts)
    assert kernels.compiled == 1, "this process compiled it once, quickly"
    another = CompiledKernels(ObjectCache(tmp_path), quick=True)
    assert not another.of(STORE).quick and another.compiled == 0


def test_quick_kernels_share_helpers_and_rewrite_missing_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a library whose file is spoiled, and of one that is not on disk any more."""

    def forget() -> None:
        monkeypatch.setattr(helpers, "_loaded", {})
        monkeypatch.setattr(forms, "_kinds", {})
        monkeypatch.setattr(forms, "_libraries", {})

    forget()
    cache = ObjectCache(tmp_path)
    CompiledKernels(cache, quick=True).of(STORE)
    files = set(tmp_path.iterdir())
    CompiledKernels(cache, quick=True).of(replace(STORE, code=STORE_IDS + ENDPGM))
    assert len(set(tmp_path.iterdir()) - files) == 1, "its helpers were there"
    kernel = cache.path(make_cache_key(STORE, quick=True))
    for broken in (lambda item: item.write_bytes(item.read_bytes()[:-7]), lambda item: item.unlink()):
        for item in files - {kernel}:
            broken(item)
        forget()
        again = CompiledKernels(cache, quick=True)
        assert again.of(STORE).address and again.compiled == 1
        assert set(tmp_path.iterdir()) >= files
        forget()
        last = CompiledKernels(cache, quick=True)
        assert last.of(STORE).address and last.compiled == 0


class Nothing(ObjectCache):
    """A cache without entries."""

    def load(self, key: str) -> bytes | None:
        return None


@pytest.mark.rest
def test_helper_name_identifies_its_contents(slow_counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the wave's size and the checks: in every kernel that calls it the text is the same."""
    for level in ("fast", "full"):
        seen: dict[str, str] = {}
        for name in names()[:: slow_counts(24, 1)]:
            zrt = load(name)
            launch = LaunchSetup((1, 1, 1), zrt.workgroup, zrt.workgroup, 32, (0, 0), vgprs=zrt.vgprs)
            variant = choose_variant(launch, make_default_target(), zrt.code, Checks(level))
            library = FormLibrary(Nothing(), variant)
            written = library._shared = SharedHelpers(lambda name: False)
            library._module = KernelModule("forms", written)
            monkeypatch.setattr(library, "_kind", forms._Kind())
            translated_to_program(variant, library)
            for helper, (text, _) in written.texts.items():
                assert seen.setdefault(helper, text) == text, (name, helper)
        assert len(seen) > 10


@pytest.mark.parametrize("module", ["zinc_rt.no_such_module", "zinc_rt.sim.chips"], ids=["fails", "does nothing"])
def test_worker_without_output_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setattr(background, "WORKER", module)
    kernels = CompiledKernels(ObjectCache(tmp_path), quick=True)
    quick = kernels.of(STORE)
    assert optimise_kernel(kernels) is quick and not kernels.is_outdated(quick)


class CodePages:
    """Code at 0x10000, in `mapped` pages."""

    def __init__(self, code: bytes, mapped: int) -> None:
        self.code = code.ljust(4096 * mapped, b"\0")

    def fetch(self, va: int, size_bytes: int) -> bytes:
        offset = va - 0x10000
        if offset + size_bytes > len(self.code):
            raise Fault(va, AccessKind.EXECUTE, "not present")
        return self.code[offset : offset + size_bytes]


def test_code_is_fetched_only_as_far_as_control_flow_reaches() -> None:
    target = target_of("gfx1201", wave=32)
    nops = b"\0\0\x80\xbf" * 3000
    assert fetch_code(CodePages(STORE_IDS + nops, 4), 0x10000, target).code == STORE_IDS  # type: ignore[arg-type]
    long = nops + STORE_IDS
    assert fetch_code(CodePages(long + nops, 8), 0x10000, target).code == long  # type: ignore[arg-type]
    cut = fetch_code(CodePages(nops, 1), 0x10000, target).code  # type: ignore[arg-type]
    assert len(cut) >= 4096, "what runs off the mapped pages is kept as far as it goes"
    with pytest.raises(Fault):
        fetch_code(CodePages(b"", 0), 0x10000, target)  # type: ignore[arg-type]
