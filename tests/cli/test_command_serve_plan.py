"""`zinc-rt serve` before it serves: a configuration, its memory, a new key; and a file read again by SIGHUP."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zinc_rt.cli.main import main as zinc_rt
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.serve.config.file import parse_config
from zinc_rt.serve.tenants.keys import Keyring

SECONDS = 60
FILE = """\
device: {tier: t_cpu, threads: 1}
models:
  - {id: small, path: qwen3-q, slots: 8, ctx: 256, kv: {pages: 64}}
  - {id: hybrid, path: qwen35moe-q, slots: 2, ctx: 128}
  - {id: later, path: gemma4-q, loaded: false}
tenants:
  - {id: alice, class: interactive, slots_guaranteed: 2, kv_reserved: 0.25}
  - {id: night, class: batch, slots_max: 2, kv_max: 0.5, models: [small]}
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "serve.yaml"
    path.write_text(FILE)
    return path


def serve(*words: str) -> int:
    return zinc_rt(["serve", *words])


def test_check_shows_memory_and_tenant_guarantees(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve("--config", str(config_file), "--check") == 0
    output = capsys.readouterr().out
    assert (
        re.search(r"full +64 +98,304 +1,024", output) and "4 of 8 requests may be as long as the context" in output
    )
    assert re.search(r"state rows +[1-9]", output)
    assert re.search(r"alice +interactive +small +2 +8 +256 +1,024 +0", output)
    assert re.search(r"night +batch +small +0 +2 +0 +512 +0", output) and not re.search(
        r"night +batch +hybrid", output
    )
    assert output.splitlines()[-1].startswith("PASS  small, hybrid: ")


def test_plan_accepts_a_bare_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve("qwen3-q", "--plan", "--tier", "t_cpu", "--ctx", "128") == 0
    output = capsys.readouterr().out
    assert "8 requests at once, context 128" in output and "tenant" not in output


def test_plan_includes_the_draft_model(capsys: pytest.CaptureFixture[str]) -> None:
    draft = f"draft:{FOLDER / 'qwen3-q.gguf'}:3"
    assert serve("qwen3-q", "--plan", "--tier", "t_cpu", "--ctx", "128", "--speculate", draft) == 0
    text = capsys.readouterr().out
    parts = {name: int(size.replace(",", "")) for name, size in re.findall(r"^(\w.*?) {2,}([\d,]+)$", text, re.M)}
    # The draft is the target itself: its weights and pages are counted twice, its steps have fewer rows.
    whole, mine = parts["together"], parts["draft model"]
    assert parts["weights"] + parts["pages, full"] < mine < whole - mine
    assert serve("qwen3-q", "--plan", "--tier", "t_cpu", "--speculate", "draft:none.gguf:3") == 2
    assert "none.gguf: no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("slots: 8", "slots: nine"), ":3: models.0.slots: nine: expected a valid integer"),
        (("pages: 64", "pages: [64, 64]"), "model small: kv.pages has 2 values for page groups full"),
        (("pages: 64", "pages: 900000000"), "the models need "),
        (("path: qwen3-q", "path: none.gguf"), "none.gguf"),
    ],
)
def test_invalid_configuration_is_reported(
    config_file: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    config_file.write_text(FILE.replace(*change))
    assert serve("--config", str(config_file), "--check") == 2
    assert message in capsys.readouterr().err


def test_option_already_set_in_config_file_is_rejected(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve("--config", str(config_file), "--slots", "3", "--check") == 2
    assert "--slots cannot be used with --config" in capsys.readouterr().err
    assert serve("--config", str(config_file), "--host", "0.0.0.0", "--check") == 2
    assert "0.0.0.0 is reachable from other machines, and no tenant has a key" in capsys.readouterr().err
    assert serve("--config", str(config_file), "--host", "0.0.0.0", "--insecure", "--check") == 0


def test_new_key_grants_the_scopes_of_its_config_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve("--new-key", "alice", "--scopes", "admin") == 0
    key, *lines = capsys.readouterr().out.splitlines()
    text = "\n".join(
        ["models: [{id: m, path: m.gguf}]", "tenants:", *(line for line in lines if line[:2] == "  ")]
    )
    caller = Keyring(parse_config(text, "f.yaml").tenants).find_caller(key)
    assert caller is not None and (caller.tenant, caller.scopes) == ("alice", {"admin"})
    assert serve("--new-key", "alice", "--scopes", "root") == 2


@pytest.mark.rest
def test_sighup_reloads_the_configuration(config_file: Path) -> None:
    config_file.write_text(FILE[: FILE.index("  - {id: hybrid")] + FILE[FILE.index("tenants:") :])
    line = [sys.executable, "-m", "zinc_rt.cli", "serve", "--port", "0", "--config", str(config_file)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("ready")
        for text, wanted in [
            (
                config_file.read_text().replace("slots_guaranteed: 2", "slots_guaranteed: 3"),
                "reload    tenants changed",
            ),
            ("models: []", "reload    nothing has changed: "),
        ]:
            config_file.write_text(text)
            process.send_signal(signal.SIGHUP)
            assert any(wanted in output for output in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.communicate()
