"""A probe is one file: docs/extending.md's is found, ordered, listed and run on the simulated device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from extending import ExtendedTree, extend_tree

from zinc_rt.probes.registry import PROBES

RUN = "import sys; from zinc_rt.probes.command import main; raise SystemExit(main(sys.argv[1:]))"


@pytest.fixture(scope="module")
def extended_tree(tmp_path_factory: pytest.TempPathFactory) -> ExtendedTree:
    return extend_tree("A probe", tmp_path_factory.mktemp("probe"))


def test_probe_is_new_and_consists_of_one_file(extended_tree: ExtendedTree) -> None:
    assert "P58" not in {probe.id for probe in PROBES}
    assert [Path(file).parent.as_posix() for file in extended_tree.files] == ["probes/groups"]


@pytest.mark.rest
def test_probe_is_listed_with_its_purpose(extended_tree: ExtendedTree) -> None:
    result = extended_tree.interpreter_in("-c", RUN, "--list", "-k", "P58")
    assert result.returncode == 0, result.stderr
    assert "two timestamps" in result.stdout and "P20" in result.stdout


@pytest.mark.rest
def test_probe_passes_on_both_tiers(extended_tree: ExtendedTree) -> None:
    done = extended_tree.interpreter_in("-c", RUN, "--device", "sim", "-k", "P58", "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    result = {result["id"]: result for result in json.loads(done.stdout)["results"]}
    assert set(result) == {"P58/t1", "P58/t2"}
    assert all(item["status"] == "pass" and item["measure"]["ticks"] >= 0 for item in result.values())
