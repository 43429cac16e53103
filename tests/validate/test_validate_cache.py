"""T-CPU results kept on disk: the same report, and nothing stale, torn or another model's is ever read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import PlantedFault
from seen import Planting, Validate, ValidateOutput
from support import Counts

from zinc_rt.golden.capture import CapturedRun, Selection
from zinc_rt.golden.capture import capture_run as really_capture
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.validate import cache, runner

FEW = ("--tokens", "3,1,4", "--steps", "1")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty folder for the results."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "zinc-rt" / "validate"


@pytest.fixture
def computed_passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one entry for every pass that is actually computed."""
    passes: list[str] = []

    def capture_and_count(*arguments: Any, **options: Any) -> CapturedRun:
        passes.append(options.get("prefill", "batched"))
        return really_capture(*arguments, **options)

    monkeypatch.setattr(runner, "capture_run", capture_and_count)
    return passes


@pytest.fixture
def tiny_path(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, "qwen3", layers=2)
    return str(path)


def list_files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*"))


OF_NOW = ("started", "wall_seconds", "direct_compute_ops", "model_execution")


def without_clock(seen: ValidateOutput) -> dict[str, Any]:
    """Also without the fields that state what was computed in this run."""
    report = {key: value for key, value in seen.report.items() if key not in OF_NOW}
    details = {key: value for key, value in report["details"].items() if key not in ("from_disk", "programs")}
    return {**report, "details": details}


@pytest.mark.rest
def test_cached_report_equals_computed_report(
    qwen35moe: str, run_validate: Validate, computed_passes: list[str]
) -> None:
    options = ("--model", qwen35moe, *FEW, "--nodes", "Qcur*")
    first = run_validate(*options)
    passes = len(computed_passes)
    cached = run_validate(*options)
    assert passes == len(computed_passes) == 4, "forward, untapped, token by token, second opinion: then none"
    anew = run_validate(*options, "--no-cache")
    assert len(computed_passes) == 8
    assert without_clock(first) == without_clock(cached) == without_clock(anew)
    ran = [seen.report["direct_compute_ops"] > 0 for seen in (first, cached, anew)]
    assert ran == [True, False, True], "what came from the disk ran nothing"


def test_result_stored_under_wrong_key_is_reported_and_ignored(
    tiny_path: str, run_validate: Validate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that forgets the tokens gives one prompt's result for another's."""
    key_of = cache.compute_key
    monkeypatch.setattr(cache, "compute_key", lambda **parts: key_of(**{**parts, "tokens": None}))
    assert run_validate("--model", tiny_path, "--tokens", "3,1,4", "--steps", "0").exit == 0
    assert run_validate("--model", tiny_path, "--tokens", "1,5,9", "--steps", "0").exit == 1
    errors = capsys.readouterr().err
    assert (
        "the cache returned the result of another run" in errors
        and "[3, 1, 4]" in errors
        and "--no-cache" in errors
    )


def test_no_cache_leaves_no_files(tiny_path: str, run_validate: Validate, empty_cache: Path) -> None:
    assert run_validate("--model", tiny_path, *FEW, "--no-cache").exit == 0
    assert not empty_cache.exists()
    assert run_validate("--model", tiny_path, *FEW).exit == 0
    assert len(list(list_files(empty_cache))) == 4 and all(
        file.suffix == ".npz" for file in list_files(empty_cache)
    )


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut in half": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "no archive": lambda data: b"x" * len(data),
    "a flipped byte in the middle": lambda data: (
        data[: len(data) // 2] + b"\xff\x00\xff" + data[len(data) // 2 + 3 :]
    ),
}


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_corrupted_file_is_recomputed(
    damage: Callable[[bytes], bytes],
    tiny_path: str,
    run_validate: Validate,
    empty_cache: Path,
    computed_passes: list[str],
) -> None:
    first = run_validate("--model", tiny_path, *FEW)
    for file in list_files(empty_cache):
        file.write_bytes(damage(file.read_bytes()))
    second = run_validate("--model", tiny_path, *FEW)
    assert len(computed_passes) == 8 and without_clock(first) == without_clock(second)
    assert run_validate("--model", tiny_path, *FEW).exit == 0 and len(computed_passes) == 8, "written whole again"


def test_foreign_archive_is_recomputed(
    tiny_path: str, run_validate: Validate, empty_cache: Path, computed_passes: list[str]
) -> None:
    run_validate("--model", tiny_path, *FEW)
    for file in list_files(empty_cache):
        np.savez(file, about=np.array("[]"), logits=np.zeros(3))
    assert run_validate("--model", tiny_path, *FEW).exit == 0 and len(computed_passes) == 8


def test_results_of_other_code_are_not_read(
    tiny_path: str, run_validate: Validate, computed_passes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_validate("--model", tiny_path, *FEW)
    monkeypatch.setattr(cache, "digest_code", lambda: "another oracle")
    run_validate("--model", tiny_path, *FEW)
    assert len(computed_passes) == 8


def test_different_model_with_same_name_is_recomputed(
    tiny_path: str, run_validate: Validate, computed_passes: list[str]
) -> None:
    first = run_validate("--model", tiny_path, *FEW)
    write_tiny(tiny_path, "qwen3", layers=2, seed=1)
    second = run_validate("--model", tiny_path, *FEW)
    assert len(computed_passes) == 8
    assert first.result("l_out-1")["measure"] != second.result("l_out-1")["measure"]


def test_same_model_under_another_name_is_a_cache_hit(
    tiny_path: str, tmp_path: Path, run_validate: Validate, computed_passes: list[str]
) -> None:
    run_validate("--model", tiny_path, *FEW)
    shutil.copy(tiny_path, tmp_path / "copy.gguf")
    assert run_validate("--model", str(tmp_path / "copy.gguf"), *FEW).exit == 0
    assert len(computed_passes) == 4


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    "other",
    [
        ["--tokens", "3,1,5", "--steps", "1"],
        [*FEW, "--ctx", "8"],
        [*FEW, "--ordering", "canonical-1-q8"],
        ["--tokens", "3,1,4", "--layers", "1", "--input", "random:1"],
        [*FEW, "--nodes", "Qcur-*"],
    ],
    ids=" ".join,
)
def test_run_options_are_part_of_the_key(
    other: list[str], tiny_path: str, run_validate: Validate, empty_cache: Path
) -> None:
    run_validate("--model", tiny_path, *FEW)
    run_validate("--model", tiny_path, "--tokens", "3,1,4", "--layers", "1", "--input", "random:0")
    before = {file.name for file in list_files(empty_cache)}
    cached = run_validate("--model", tiny_path, *other)
    assert {file.name for file in list_files(empty_cache)} > before
    assert without_clock(cached) == without_clock(run_validate("--model", tiny_path, *other, "--no-cache"))


def test_only_t_cpu_results_are_cached(
    tiny_path: str, run_validate: Validate, plant_fault: Planting, computed_passes: list[str]
) -> None:
    plant_fault(PlantedFault())
    for _ in range(2):
        assert run_validate("--model", tiny_path, "--tiers", "t1,t_cpu", *FEW).exit == 0
    assert len(computed_passes) == 9, "t_cpu once; t1 tapped, untapped and token by token, twice"


def test_unwritable_cache_is_not_an_error(
    tiny_path: str, run_validate: Validate, tmp_path: Path, computed_passes: list[str]
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    for _ in range(2):
        assert run_validate("--model", tiny_path, *FEW).exit == 0
    assert len(computed_passes) == 8


def test_cache_on_full_disk_is_not_an_error(
    tiny_path: str, run_validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", raise_disk_full)
    assert run_validate("--model", tiny_path, *FEW).exit == 0


def test_cached_run_round_trips(empty_cache: Path) -> None:
    odd = np.array([[np.nan, -0.0, 1e-45], [np.inf, -np.inf, 3.4e38]], np.float32)
    ids = np.array([[3, 1]], np.int32)
    kept = CapturedRun(
        odd, {"l_out-0": odd[:1], "ffn_moe_topk-0": ids, "Qcur.matmul-0": odd}, [7], {"l_out-0": 64}, 1.5
    )
    cache.store_run("key", kept)
    back = cache.load_run("key")
    assert back is not None and back.cached
    assert list(back.values) == list(kept.values), "graph order"
    assert (back.generated, back.head_dims, back.seconds) == ([7], {"l_out-0": 64}, 1.5)
    assert back.logits.tobytes() == odd.tobytes() and back.values["ffn_moe_topk-0"].dtype == np.int32
    assert cache.load_run("another key") is None
    assert [file.name for file in list_files(empty_cache)] == ["key.npz"]


def test_any_flipped_byte_is_a_cache_miss(empty_cache: Path, slow_counts: Counts) -> None:
    kept = CapturedRun(
        np.ones((1, 3), np.float32), {"l_out-0": np.ones((1, 3), np.float32)}, [7], {"l_out-0": 64}, 1.5
    )
    cache.store_run("key", kept)
    path = empty_cache / "key.npz"
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for index in rng.choice(len(data), min(len(data), slow_counts(400, len(data))), replace=False):
        torn = bytearray(data)
        torn[index] ^= 1 << int(rng.integers(8))
        path.write_bytes(torn)
        cache.load_run("key")  # None, or what a byte that nothing reads left alone


def test_oldest_results_are_evicted_first(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CapturedRun(np.zeros((1, 100), np.float32), {})
    for age, key in enumerate(["newest", "middle", "oldest"]):
        cache.store_run(key, run)
        os.utime(empty_cache / f"{key}.npz", (1e9 - age, 1e9 - age))
    size_bytes = (empty_cache / "newest.npz").stat().st_size
    monkeypatch.setattr(cache, "KEEP_BYTES", 3 * size_bytes)
    cache.store_run("now", run)
    assert {file.stem for file in list_files(empty_cache)} == {"now", "newest", "middle"}


@pytest.mark.parametrize("changed", [{"inject": {"l_out-0": np.ones(3)}}, {"selection": repr(Selection(("x",)))}])
def test_key_covers_every_part(changed: dict[str, Any]) -> None:
    parts: dict[str, Any] = {"tokens": [1], "inject": {"l_out-0": np.zeros(3)}, "selection": repr(Selection())}
    assert cache.compute_key(**parts) == cache.compute_key(**dict(reversed(parts.items())))
    assert cache.compute_key(**parts) != cache.compute_key(**{**parts, **changed})


def test_arrays_of_different_shape_and_same_bytes_have_different_keys() -> None:
    flat, folded = np.zeros(4, np.float32), np.zeros((2, 2), np.float32)
    assert (
        len({cache.compute_key(a=flat), cache.compute_key(a=folded), cache.compute_key(a=flat.view(np.int32))})
        == 3
    )
