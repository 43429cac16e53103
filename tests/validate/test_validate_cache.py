"""T-CPU results kept on disk: the same report, and nothing stale, torn or another model's is ever read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import Plant
from seen import Planting, Seen, Validate
from support import Counts

from zinc_rt.golden.capture import CapturedRun, Selection
from zinc_rt.golden.capture import capture as really_capture
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.validate import cache, runner

FEW = ("--tokens", "3,1,4", "--steps", "1")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty folder for the results."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "zinc-rt" / "validate"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows by one entry for every pass that is actually computed."""
    passes: list[str] = []

    def counted(*arguments: Any, **options: Any) -> CapturedRun:
        passes.append(options.get("prefill", "batched"))
        return really_capture(*arguments, **options)

    monkeypatch.setattr(runner, "capture", counted)
    return passes


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    write_tiny(path, "qwen3", layers=2)
    return str(path)


def files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*"))


OF_NOW = ("started", "wall_seconds", "direct_compute_ops", "model_execution")


def without_clock(seen: Seen) -> dict[str, Any]:
    """Also without the fields that state what was computed in this run."""
    report = {key: value for key, value in seen.report.items() if key not in OF_NOW}
    details = {key: value for key, value in report["details"].items() if key not in ("from_disk", "programs")}
    return {**report, "details": details}


@pytest.mark.rest
def test_cached_report_equals_computed_report(qwen35moe: str, validate: Validate, computed: list[str]) -> None:
    options = ("--model", qwen35moe, *FEW, "--nodes", "Qcur*")
    first = validate(*options)
    passes = len(computed)
    cached = validate(*options)
    assert passes == len(computed) == 4, "forward, untapped, token by token, second opinion: then none"
    anew = validate(*options, "--no-cache")
    assert len(computed) == 8
    assert without_clock(first) == without_clock(cached) == without_clock(anew)
    ran = [seen.report["direct_compute_ops"] > 0 for seen in (first, cached, anew)]
    assert ran == [True, False, True], "what came from the disk ran nothing"


def test_result_stored_under_wrong_key_is_reported_and_ignored(
    tiny: str, validate: Validate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that forgets the tokens gives one prompt's result for another's."""
    key_of = cache.key_of
    monkeypatch.setattr(cache, "key_of", lambda **parts: key_of(**{**parts, "tokens": None}))
    assert validate("--model", tiny, "--tokens", "3,1,4", "--steps", "0").exit == 0
    assert validate("--model", tiny, "--tokens", "1,5,9", "--steps", "0").exit == 1
    errors = capsys.readouterr().err
    assert (
        "the cache returned the result of another run" in errors
        and "[3, 1, 4]" in errors
        and "--no-cache" in errors
    )


def test_no_cache_leaves_no_files(tiny: str, validate: Validate, empty_cache: Path) -> None:
    assert validate("--model", tiny, *FEW, "--no-cache").exit == 0
    assert not empty_cache.exists()
    assert validate("--model", tiny, *FEW).exit == 0
    assert len(list(files(empty_cache))) == 4 and all(file.suffix == ".npz" for file in files(empty_cache))


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
    damage: Callable[[bytes], bytes], tiny: str, validate: Validate, empty_cache: Path, computed: list[str]
) -> None:
    first = validate("--model", tiny, *FEW)
    for file in files(empty_cache):
        file.write_bytes(damage(file.read_bytes()))
    second = validate("--model", tiny, *FEW)
    assert len(computed) == 8 and without_clock(first) == without_clock(second)
    assert validate("--model", tiny, *FEW).exit == 0 and len(computed) == 8, "written whole again"


def test_foreign_archive_is_recomputed(
    tiny: str, validate: Validate, empty_cache: Path, computed: list[str]
) -> None:
    validate("--model", tiny, *FEW)
    for file in files(empty_cache):
        np.savez(file, about=np.array("[]"), logits=np.zeros(3))
    assert validate("--model", tiny, *FEW).exit == 0 and len(computed) == 8


def test_results_of_other_code_are_not_read(
    tiny: str, validate: Validate, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    validate("--model", tiny, *FEW)
    monkeypatch.setattr(cache, "code_version", lambda: "another oracle")
    validate("--model", tiny, *FEW)
    assert len(computed) == 8


def test_different_model_with_same_name_is_recomputed(tiny: str, validate: Validate, computed: list[str]) -> None:
    first = validate("--model", tiny, *FEW)
    write_tiny(tiny, "qwen3", layers=2, seed=1)
    second = validate("--model", tiny, *FEW)
    assert len(computed) == 8
    assert first.result("l_out-1")["measure"] != second.result("l_out-1")["measure"]


def test_same_model_under_another_name_is_a_cache_hit(
    tiny: str, tmp_path: Path, validate: Validate, computed: list[str]
) -> None:
    validate("--model", tiny, *FEW)
    shutil.copy(tiny, tmp_path / "copy.gguf")
    assert validate("--model", str(tmp_path / "copy.gguf"), *FEW).exit == 0
    assert len(computed) == 4


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
    other: list[str], tiny: str, validate: Validate, empty_cache: Path
) -> None:
    validate("--model", tiny, *FEW)
    validate("--model", tiny, "--tokens", "3,1,4", "--layers", "1", "--input", "random:0")
    before = {file.name for file in files(empty_cache)}
    cached = validate("--model", tiny, *other)
    assert {file.name for file in files(empty_cache)} > before
    assert without_clock(cached) == without_clock(validate("--model", tiny, *other, "--no-cache"))


def test_only_t_cpu_results_are_cached(
    tiny: str, validate: Validate, plant: Planting, computed: list[str]
) -> None:
    plant(Plant())
    for _ in range(2):
        assert validate("--model", tiny, "--tiers", "t1,t_cpu", *FEW).exit == 0
    assert len(computed) == 9, "t_cpu once; t1 tapped, untapped and token by token, twice"


def test_unwritable_cache_is_not_an_error(
    tiny: str, validate: Validate, tmp_path: Path, computed: list[str]
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    for _ in range(2):
        assert validate("--model", tiny, *FEW).exit == 0
    assert len(computed) == 8


def test_cache_on_full_disk_is_not_an_error(
    tiny: str, validate: Validate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert validate("--model", tiny, *FEW).exit == 0


def test_cached_run_round_trips(empty_cache: Path) -> None:
    odd = np.array([[np.nan, -0.0, 1e-45], [np.inf, -np.inf, 3.4e38]], np.float32)
    ids = np.array([[3, 1]], np.int32)
    kept = CapturedRun(
        odd, {"l_out-0": odd[:1], "ffn_moe_topk-0": ids, "Qcur.matmul-0": odd}, [7], {"l_out-0": 64}, 1.5
    )
    cache.store("key", kept)
    back = cache.load("key")
    assert back is not None and back.cached
    assert list(back.values) == list(kept.values), "graph order"
    assert (back.generated, back.head_dims, back.seconds) == ([7], {"l_out-0": 64}, 1.5)
    assert back.logits.tobytes() == odd.tobytes() and back.values["ffn_moe_topk-0"].dtype == np.int32
    assert cache.load("another key") is None
    assert [file.name for file in files(empty_cache)] == ["key.npz"]


def test_any_flipped_byte_is_a_cache_miss(empty_cache: Path, slow_counts: Counts) -> None:
    kept = CapturedRun(
        np.ones((1, 3), np.float32), {"l_out-0": np.ones((1, 3), np.float32)}, [7], {"l_out-0": 64}, 1.5
    )
    cache.store("key", kept)
    path = empty_cache / "key.npz"
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for index in rng.choice(len(data), min(len(data), slow_counts(400, len(data))), replace=False):
        torn = bytearray(data)
        torn[index] ^= 1 << int(rng.integers(8))
        path.write_bytes(torn)
        cache.load("key")  # None, or what a byte that nothing reads left alone


def test_oldest_results_are_evicted_first(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CapturedRun(np.zeros((1, 100), np.float32), {})
    for age, key in enumerate(["newest", "middle", "oldest"]):
        cache.store(key, run)
        os.utime(empty_cache / f"{key}.npz", (1e9 - age, 1e9 - age))
    size_bytes = (empty_cache / "newest.npz").stat().st_size
    monkeypatch.setattr(cache, "KEEP_BYTES", 3 * size_bytes)
    cache.store("now", run)
    assert {file.stem for file in files(empty_cache)} == {"now", "newest", "middle"}


@pytest.mark.parametrize("changed", [{"inject": {"l_out-0": np.ones(3)}}, {"selection": repr(Selection(("x",)))}])
def test_key_covers_every_part(changed: dict[str, Any]) -> None:
    parts: dict[str, Any] = {"tokens": [1], "inject": {"l_out-0": np.zeros(3)}, "selection": repr(Selection())}
    assert cache.key_of(**parts) == cache.key_of(**dict(reversed(parts.items())))
    assert cache.key_of(**parts) != cache.key_of(**{**parts, **changed})


def test_arrays_of_different_shape_and_same_bytes_have_different_keys() -> None:
    flat, folded = np.zeros(4, np.float32), np.zeros((2, 2), np.float32)
    assert len({cache.key_of(a=flat), cache.key_of(a=folded), cache.key_of(a=flat.view(np.int32))}) == 3
