"""Check Claude Code: one question, over Anthropic's API, with all its tools."""

from __future__ import annotations

import json
import os
from pathlib import Path

from check_kit import MODEL, URL, check, print_npm_result, run

os.environ.update(
    ANTHROPIC_BASE_URL=URL,
    ANTHROPIC_API_KEY="none",
    ANTHROPIC_MODEL=MODEL,
    ANTHROPIC_SMALL_FAST_MODEL=MODEL,
    CLAUDE_CODE_MAX_OUTPUT_TOKENS="4096",  # an answer that is cut is an error; random weights end within hundreds
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    DISABLE_AUTOUPDATER="1",
)
claude = str(Path(os.environ["NODE_TOOLS"]) / "claude")
result = json.loads(run(claude, "-p", "Say something.", "--output-format", "json").strip().splitlines()[-1])
check("an answer", result["subtype"] == "success" and not result["is_error"], result)
usage = result["usage"]
check("prompt tokens", usage["input_tokens"] + usage["cache_read_input_tokens"] > 1000, usage)
print_npm_result("@anthropic-ai/claude-code")
