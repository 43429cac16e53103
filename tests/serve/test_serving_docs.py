"""docs/serving.md and docs/tenants.md: curl lines and Python work as pasted, configurations hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_server import RunningServer, make_config, run_server

from zinc_rt.serve.config.file import read_config

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "serving.md"
TEXT = PAGE.read_text(encoding="utf-8") + (DOCS / "tenants.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
HERE = "http://127.0.0.1:8080"


def code_blocks(language: str) -> list[str]:
    return [text for result, text in BLOCKS if result == language]


@pytest.fixture(scope="module")
def docs_server() -> Iterator[RunningServer]:
    yield from run_server(make_config())


@pytest.mark.parametrize("block", code_blocks("sh"), ids=range(len(code_blocks("sh"))))
@pytest.mark.rest(keep=1)
def test_curl_example_works_as_pasted(docs_server: RunningServer, block: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    (tmp_path / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\nnoproxy = *\n")
    result = subprocess.run(
        ["bash", "-ec", block.replace(HERE, docs_server.url)],
        cwd=tmp_path, env={"CURL_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout or (tmp_path / "steps.json").stat().st_size > 100


@pytest.mark.parametrize("block", code_blocks("python"), ids=range(len(code_blocks("python"))))
@pytest.mark.rest
def test_python_example_works_as_pasted(docs_server: RunningServer, block: str) -> None:
    assert HERE in block
    result = subprocess.run(
        [sys.executable, "-c", block.replace(HERE, docs_server.url)], capture_output=True, text=True
    )
    assert result.returncode == 0 and result.stdout.strip(), result.stderr


CONFIGURATIONS = [block for block in code_blocks("yaml") if block.startswith("version:")]


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=["short", "whole"])
def test_documented_configuration_is_valid(tmp_path: Path, block: str) -> None:
    (tmp_path / "serve.yaml").write_text(block)
    read = read_config(tmp_path / "serve.yaml")
    assert [tenant.id for tenant in read.tenants] == ["alice", "nightly"]
    assert read.ledger.path and read.ledger.path.endswith("usage.sqlite")


def test_every_documented_metric_exists(docs_server: RunningServer) -> None:
    import httpx

    there = httpx.get(f"{docs_server.url}/metrics").text
    text = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:vllm:|zinc_rt_|process_)[a-z_]+", text)) - {
        "zinc_rt_ledger_lag_seconds",
        "zinc_rt_",
    }
    missing = [name for name in sorted(named) if f"# HELP {name}" not in there]
    assert not missing
