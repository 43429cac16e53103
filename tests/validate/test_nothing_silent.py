"""What was simulated, and what was not computed now, is said wherever a result is: text, JSON, JUnit, HTML."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pytest

from zinc_rt.engine import devices
from zinc_rt.trace import command as trace
from zinc_rt.trace.reader import LogReader
from zinc_rt.trace.records import Replayed
from zinc_rt.validate import cache
from zinc_rt.validate.command import main

FEW = ["--tokens", "1,2,3", "--steps", "0"]


@pytest.fixture
def kept_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.rest
def test_cached_results_are_marked_everywhere(
    kept_cache: Path, qwen3: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--model", qwen3, *FEW, "--json", str(kept_cache / "r.json"), "--html", str(kept_cache / "r.html")]
    assert main(line) == 0
    assert "cached results" not in capsys.readouterr().out
    assert "from_disk" not in json.loads((kept_cache / "r.json").read_text())["details"]
    assert main(line) == 0
    assert "cached results: t_cpu: forward" in capsys.readouterr().out
    from_disk = json.loads((kept_cache / "r.json").read_text())["details"]["from_disk"]
    assert from_disk[0] == "qwen3-q, t_cpu: forward" and len(from_disk) == 4
    assert "read from the cache of an earlier run" in (kept_cache / "r.html").read_text()
    assert main([*line, "--no-cache"]) == 0
    assert "from_disk" not in json.loads((kept_cache / "r.json").read_text())["details"]


@pytest.mark.parametrize("part", ["processor", "features", "blas"])
def test_another_processor_or_blas_is_another_result(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache.compute_key(tokens=np.arange(3))
    assert cache.compute_key(tokens=np.arange(3)) == before
    other = {**cache.describe_arithmetic(), part: "another"}
    monkeypatch.setattr(cache, "describe_arithmetic", lambda: other)
    assert cache.compute_key(tokens=np.arange(3)) != before


def test_blas_of_numpy_is_identified() -> None:
    known = cache.describe_arithmetic()
    assert known["processor"] and known["features"] and known["numpy"] == np.__version__
    assert known["blas"]["name"], known


def test_trace_of_cached_run_records_everything(
    kept_cache: Path, qwen3: str, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = []
    for name in ("first", "second"):
        log = kept_cache / f"{name}.zlog"
        assert trace.main(["-o", str(log), "--", "validate", "--model", qwen3, *FEW, "--tiers", "t_cpu"]) == 0
        with LogReader(log) as reader:
            steps.append(sum(isinstance(item, Replayed) for item in reader))
    assert "cached results" not in capsys.readouterr().out
    assert steps[0] == steps[1] > 0


@pytest.mark.rest
def test_implicitly_simulated_tier_is_reported_and_fails_under_strict(
    kept_cache: Path, qwen3: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "find_amd_gpus", tuple)
    files = [
        "--json",
        str(kept_cache / "r.json"),
        "--junit",
        str(kept_cache / "r.xml"),
        "--html",
        str(kept_cache / "r.html"),
    ]
    line = ["--model", qwen3, *FEW, "--tiers", "t1,t_cpu", *files]
    assert main([*line, "--strict"]) == 1
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith("FAIL") and "t1 simulated without --device sim" in verdict
    assert "on a SIMULATED device (t1)" in verdict
    report = json.loads((kept_cache / "r.json").read_text())
    assert report["details"]["simulated_unasked"] == ["t1"] and report["verdict"]["exit"] == 1
    suite = Xml.parse(kept_cache / "r.xml").getroot()
    assert suite.get("name") == "zinc-rt validate [SIMULATED]"
    for case in suite:
        assert str(case.get("name")).endswith("[SIMULATED]") is not str(case.get("classname")).endswith("t_cpu")
    page = (kept_cache / "r.html").read_text()
    assert "a SIMULATED device (t1)" in page and "<title>FAIL SIMULATED" in page
    assert main(line) == 0, "without --strict it passes, and says so"
    assert main([*line, "--strict", "--device", "sim"]) == 0, "asked for"
    assert "SIMULATED" in capsys.readouterr().out.splitlines()[-1]
