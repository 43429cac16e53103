"""Check Codex: one question, over the Responses API, with all its tools."""

from __future__ import annotations

import json
import os
from pathlib import Path

from check_kit import FOLDER, MODEL, URL, check, print_npm_result, run

home = FOLDER / "codex"
home.mkdir()
(home / "config.toml").write_text(
    f'model = "{MODEL}"\nmodel_provider = "local"\n'
    f'[model_providers.local]\nname = "local"\nbase_url = "{URL}/v1"\nwire_api = "responses"\n'
)
os.environ["CODEX_HOME"] = str(home)
codex = str(Path(os.environ["NODE_TOOLS"]) / "codex")
lines = run(codex, "exec", "--skip-git-repo-check", "--json", "Say something.").splitlines()
events = [json.loads(line) for line in lines if line.startswith("{")]
check("a turn", events[-1]["type"] == "turn.completed", events[-3:])
check("prompt tokens", events[-1]["usage"]["input_tokens"] > 1000, events[-1])
print_npm_result("@openai/codex")
