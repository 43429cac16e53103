"""pull fetches every part of a model from a hub, an address or a folder; models lists what is there."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from host.file_server import Hub, serving
from model.split_files import split, swap

from zinc_rt.cli.models import main as models
from zinc_rt.cli.pull import main as pull
from zinc_rt.engine.opening import find_model_file
from zinc_rt.model.gguf import digest_model, read_gguf

Capture = pytest.CaptureFixture[str]
QWEN3, HYBRID = find_model_file("qwen3-q"), find_model_file("qwen35moe-q")
TREE = "/api/models/o/n/tree/main"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the repository o/n: tiny-Q4 in three parts, and tiny-Q8."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ZINC_RT_MODELS", str(tmp_path / "models"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    (tmp_path / "published").mkdir()
    parts = split(QWEN3, tmp_path / "published", [3, 8], "tiny-Q4")
    shutil.copy(HYBRID, tmp_path / "published" / "tiny-Q8.gguf")
    files = {path.name: path.read_bytes() for path in (tmp_path / "published").iterdir()}
    tree: list[dict[str, Any]] = [{"type": "file", "path": "README.md", "size": 3}]
    for name, content in sorted(files.items()):
        oid = hashlib.sha256(content).hexdigest()
        tree.append({"path": f"Q/{name}", "size": 130, "lfs": {"oid": oid, "size": len(content)}})
    hub = Hub({f"/o/n/resolve/main/Q/{name}": content for name, content in files.items()}, {TREE: tree})
    assert len(parts) == 3
    with serving(hub):
        monkeypatch.setenv("ZINC_RT_HUB", hub.url)
        yield hub


def test_pull_fetches_every_part_into_the_folder_of_models(hub: Hub, tmp_path: Path, capsys: Capture) -> None:
    assert pull(["o/n:q4"]) == 0
    folder = tmp_path / "models" / "o" / "n"
    gguf = read_gguf(folder / "tiny-Q4-00001-of-00003.gguf")
    assert digest_model(gguf) == digest_model(read_gguf(QWEN3))
    assert capsys.readouterr().out.count("sha256 as published") == 3
    hub.requests.clear()
    assert pull(["o/n:q4"]) == 0
    assert [path for _, path, _ in hub.requests] == [TREE]
    assert capsys.readouterr().out.count("present") == 3


def test_pull_asks_which_of_several_models(hub: Hub, capsys: Capture) -> None:
    assert pull(["o/n"]) == 2
    assert "2 models: tiny-Q4, tiny-Q8" in capsys.readouterr().err
    assert pull(["o/n", "--list"]) == 0
    assert "tiny-Q8" in capsys.readouterr().out
    assert pull(["o/n:IQ1"]) == 2
    assert "o/n:IQ1: no .gguf file" in capsys.readouterr().err


def test_pull_resumes_and_reports_where(hub: Hub, tmp_path: Path, capsys: Capture) -> None:
    hub.cuts = [70_000, *[0] * 9]
    assert pull(["o/n:q8"]) == 2
    hub.cuts = []
    assert models([str(tmp_path / "models")]) == 0
    assert "unfinished: " in capsys.readouterr().out
    assert pull(["o/n:q8", "--json", str(tmp_path / "r.json")]) == 0
    (result,) = json.loads((tmp_path / "r.json").read_text())["results"]
    assert result["measure"]["resumed_at"] == 70_000


def test_pull_of_an_address_takes_its_other_parts(hub: Hub, tmp_path: Path) -> None:
    url = f"{hub.url}/o/n/resolve/main/Q/tiny-Q4-00002-of-00003.gguf"
    assert pull([url, "-o", str(tmp_path / "here")]) == 0
    assert len(list((tmp_path / "here").glob("*.gguf"))) == 3


def test_pull_compares_the_named_sha256(hub: Hub, tmp_path: Path, capsys: Capture) -> None:
    url, here = f"{hub.url}/o/n/resolve/main/Q/tiny-Q8.gguf", str(tmp_path / "here")
    assert pull([url, "-o", here, "--sha256", "0" * 64]) == 1
    assert "the published one is 000" in capsys.readouterr().err
    assert pull([url, "-o", here, "--sha256", hashlib.sha256(HYBRID.read_bytes()).hexdigest()]) == 0


def test_pull_from_a_folder_and_of_swapped_parts(hub: Hub, tmp_path: Path, capsys: Capture) -> None:
    source = tmp_path / "published" / "tiny-Q4-00001-of-00003.gguf"
    assert pull([str(source), "-o", str(tmp_path / "here")]) == 0
    swap(*(source.with_name(f"tiny-Q4-0000{number}-of-00003.gguf") for number in (2, 3)))
    assert pull([str(source), "-o", str(tmp_path / "there")]) == 2
    assert "by its name, part" in capsys.readouterr().err


def test_token_of_the_environment_opens_a_gated_repository(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    hub.token = "secret"
    assert pull(["o/n:q8"]) == 2
    assert "set HF_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert pull(["o/n:q8"]) == 0
    assert "secret" not in capsys.readouterr().out


@pytest.mark.parametrize("source", ["nowhere", "a/b/c", "./o/n", "http://127.0.0.1/page.html"])
def test_unusable_source_is_rejected(hub: Hub, source: str, capsys: Capture) -> None:
    assert pull([source]) == 2
    assert source in capsys.readouterr().err


def test_models_lists_each_model_once_and_whether_it_fits(hub: Hub, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "published"
    (folder / "broken.gguf").write_bytes(b"GGUF")
    (folder / "tiny-Q9-00001-of-00002.gguf").write_bytes((folder / "tiny-Q4-00001-of-00003.gguf").read_bytes())
    assert models([str(folder), "--vram", "16", "--json", str(tmp_path / "r.json")]) == 1
    results = {Path(r["id"]).name: r for r in json.loads((tmp_path / "r.json").read_text())["results"]}
    assert sorted(results) == [
        "broken.gguf",
        "tiny-Q4-00001-of-00003.gguf",
        "tiny-Q8.gguf",
        "tiny-Q9-00001-of-00002.gguf",
    ]
    whole = results["tiny-Q4-00001-of-00003.gguf"]
    assert (whole["status"], whole["measure"]["parts"], whole["measure"]["fits"]) == ("pass", 3, True)
    assert whole["measure"]["weights_bytes"] > 0 and whole["measure"]["context_bytes"] > 0
    assert results["broken.gguf"]["status"] == "fail"
    capsys.readouterr()


def test_models_places_experts_in_host_memory_and_names_what_does_not_fit(hub: Hub, capsys: Capture) -> None:
    assert models([str(HYBRID), "--vram", "16", "--experts", "gtt"]) == 0
    assert "layers in host memory" in capsys.readouterr().out
    assert models([str(HYBRID), "--vram", "0.0001"]) == 0
    assert "no: " in capsys.readouterr().out


def test_models_without_a_model_skips(hub: Hub, capsys: Capture) -> None:
    assert models([]) == 77
    assert "zinc-rt pull" in capsys.readouterr().out
