"""What the checks share: they run in a client's environment, where nothing of this project is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Any

URL = os.environ["SERVER_URL"]
MODEL = os.environ["MODEL"]
FOLDER = Path(os.environ["CHECK_FOLDER"])  # to write to
TOKENIZER = os.environ["TOKENIZER_FOLDER"]  # Hugging Face's files of the model's tokenizer
KEY = "none"
MESSAGES = [{"role": "user", "content": "Say something."}]

_done: list[str] = []


def ask(path: str, **body: Any) -> Any:
    """The same server without any client."""
    request = urllib.request.Request(
        f"{URL}{path}", json.dumps({"model": MODEL, **body}).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def said(max_tokens: int, **body: Any) -> str:
    """The chat answer to MESSAGES at temperature 0."""
    answer = ask("/v1/chat/completions", messages=MESSAGES, max_tokens=max_tokens, temperature=0, **body)
    text: str = answer["choices"][0]["message"]["content"]
    return text


def check(what: str, ok: bool, seen: object = "") -> None:
    if not ok:
        sys.exit(f"{what}: {seen!r}")
    _done.append(what)


def run(*argv: str) -> str:
    """A client that is a command; its words, where it fails."""
    done = subprocess.run(argv, cwd=FOLDER, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"{argv[0]}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def tool(name: str) -> str:
    """A command of this environment."""
    return str(Path(sys.executable).parent / name)


def finish(package: str) -> None:
    print(json.dumps({"version": version(package), "checks": _done}))
