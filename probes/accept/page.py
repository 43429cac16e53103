"""The page of an acceptance test: one HTML file with the report, its digest, and a signature on request."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

from zinc_rt.cli.report import Report, write_text
from zinc_rt.host.errors import InputError, UnsupportedError

NAMESPACE = "zinc-rt-accept"  # of the OpenSSH signature


def write_page(path: Path, report: Report, key: Path | None) -> None:
    """Write the page. Raises OutputError if it cannot be written, InputError for an unusable key."""
    write_text(path, render_page(report, key))


def render_page(report: Report, key: Path | None = None) -> str:
    """Return one HTML file without external resources. The signature covers the report's JSON text."""
    from jinja2 import Environment

    text = report.to_json()
    source = files("zinc_rt.probes.accept").joinpath("page.html.jinja").read_text(encoding="utf-8")
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
    return template.render(
        report=report,
        verdict=report.verdict(),
        text=text,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        signature=sign_text(text, key) if key is not None else "",
        namespace=NAMESPACE,
    )


def check_key(key: Path) -> None:
    """Raise UnsupportedError without OpenSSH, InputError for a missing key."""
    if shutil.which("ssh-keygen") is None:
        raise UnsupportedError("--key: ssh-keygen is not installed", next="install the OpenSSH client")
    if not key.exists():
        raise InputError(f"{key}: no such file", next="--key FILE: an OpenSSH private key")


def sign_text(text: str, key: Path) -> str:
    """Return an OpenSSH signature of a text. Raises InputError if the key cannot sign."""
    with tempfile.TemporaryDirectory(prefix="zinc-rt-sign-") as folder:
        path = Path(folder) / "report.json"
        path.write_text(text, encoding="utf-8")
        command = ["ssh-keygen", "-q", "-Y", "sign", "-n", NAMESPACE, "-f", str(key), str(path)]
        ended = subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)
        if ended.returncode:
            lines = ended.stderr.decode(errors="replace").strip().splitlines()
            raise InputError(f"{key}: cannot sign: {lines[-1] if lines else ended.returncode}", next="--key FILE")
        return path.with_suffix(".json.sig").read_text(encoding="utf-8")
