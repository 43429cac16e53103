"""The committed goldens of a Vulkan driver: T-CPU has their bits in every node, and so has the driver here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zinc_rt.backends.vulkan.device import PhysicalDevice
from zinc_rt.golden import embedded
from zinc_rt.golden.embedded import Pair, list_vulkan_pairs
from zinc_rt.golden.format import read_golden
from zinc_rt.validate.command import main as validate
from zinc_rt.validate.goldens.command import main

PAIRS = [pytest.param(pair, id=pair.model.stem) for pair in list_vulkan_pairs()]
SOME = [
    pytest.param(pair, id=pair.model.stem, marks=[pytest.mark.slow] if pair.model.stem.startswith("gemma") else [])
    for pair in list_vulkan_pairs()
]


@pytest.mark.parametrize("pair", PAIRS)
def test_golden_names_its_driver_and_is_small(pair: Pair) -> None:
    golden = read_golden(pair.golden)
    assert (
        golden.source == "zinc-rt vulkan"
        and golden.ordering == "canonical-1"
        and pair.golden.stat().st_size < 12_000
    )
    device = golden.meta["device"]
    assert device["arch"] == "vulkan" and device["profile"] and not device.get("driver_files")
    assert {"pipeline_cache_uuid", "float_modes", "self_test"} == device["identity"].keys()
    assert not [word for word in str(golden.meta["command"]).split() if word.startswith("/")]
    theirs = read_golden(embedded.FOLDER / f"{pair.model.stem}.npz")
    assert golden.ids.tolist() == theirs.ids.tolist() and golden.ctx == theirs.ctx


@pytest.mark.rest
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.slow(keep=2)
def test_oracle_matches_every_node_bit_exactly(pair: Pair, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    assert main(["check", str(pair.golden), "--json", str(report)]) == 0
    results = {result["id"].rpartition("/")[2]: result for result in json.loads(report.read_text())["results"]}
    digests = read_golden(pair.golden).digests
    assert results["digests"]["measure"] == {"compared": len(digests), "differ": []}
    assert len(digests) > 45 and results["logits"]["measure"]["equal_bits"]
    assert all(result["status"] == "pass" for result in results.values())


@pytest.mark.rest
@pytest.mark.parametrize("pair", SOME)
@pytest.mark.slow(keep=2)
def test_local_driver_matches_bit_exactly(pair: Pair, vulkan_driver: PhysicalDevice, capsys: Any) -> None:
    line = ["--model", str(pair.model), "--golden", str(pair.golden), "--tiers", "vulkan", "--no-cache"]
    assert validate(line) == 0, capsys.readouterr().out
    assert "bit-exact" in capsys.readouterr().out
