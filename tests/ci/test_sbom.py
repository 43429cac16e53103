"""The bill of materials: every package that an installation needs, once, each with what it needs itself."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sbom_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ci_sbom", ROOT / "ci" / "sbom.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sbom_lists_direct_and_transitive_requirements(sbom_module: ModuleType) -> None:
    bill = sbom_module.build_sbom()
    names = [sbom_module.normalise_name(component["name"]) for component in bill["components"]]
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = {sbom_module.normalise_name(sbom_module.Requirement(line).name) for line in required}
    assert wanted <= set(names) and len(names) == len(set(names))
    assert "pytest" not in names and "markupsafe" in names, "not what the tests need; what jinja2 needs"
    graph = {row["ref"]: set(row["dependsOn"]) for row in bill["dependencies"]}
    known = {component["bom-ref"] for component in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert set(graph) == known and set().union(*graph.values()) <= known


def test_sbom_matches_cyclonedx_schema(sbom_module: ModuleType) -> None:
    bill = sbom_module.build_sbom()
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert bill["serialNumber"].startswith("urn:uuid:")
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "MIT"}]
    for component in bill["components"]:
        assert (
            component["purl"] == f"pkg:pypi/{sbom_module.normalise_name(component['name'])}@{component['version']}"
        )
        assert component.get("licenses"), f"{component['name']} says nothing of its licence"


@pytest.mark.rest
def test_same_packages_produce_same_sbom(sbom_module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert (
        sbom_module.build_sbom() == sbom_module.build_sbom()
        and sbom_module.build_sbom()["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    )


def test_extra_adds_its_packages(sbom_module: ModuleType) -> None:
    assert any(
        component["name"] == "Markdown" for component in sbom_module.build_sbom(frozenset({"docs"}))["components"]
    )


def test_errors_are_one_line(
    sbom_module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sbom_module.main(["--extra", "nothing"]) == 2 and "unknown extra 'nothing'" in capsys.readouterr().err
    assert sbom_module.main([str(tmp_path / "no" / "bom.json")]) == 2 and "the folder" in capsys.readouterr().err

    def raise_not_found(extras: frozenset[str]) -> None:
        raise PackageNotFoundError("numpy")

    monkeypatch.setattr(sbom_module, "build_sbom", raise_not_found)
    assert sbom_module.main([]) == 2 and "numpy is not installed" in capsys.readouterr().err


def test_sbom_is_written_atomically(sbom_module: ModuleType, tmp_path: Path) -> None:
    assert sbom_module.main([str(tmp_path / "bom.json")]) == 0
    assert json.loads((tmp_path / "bom.json").read_text())["components"]
