"""Check aider: a request about a file, by the chat completions API."""

from __future__ import annotations

import os
import re

from check_kit import FOLDER, MODEL, URL, check, print_result, run, tool_path

# Random weights may end an answer at once; the first request with an answer counts.
REQUESTS = ("What does add return?", "Explain add.py", "Hello", "Write a poem about the sea", "Add a test")
OPTIONS = (
    "--no-git --yes-always --no-check-update --no-show-model-warnings --no-pretty --analytics-disable "
    "--chat-mode ask --chat-history-file chat.md --input-history-file input"
)

os.environ.update(OPENAI_API_BASE=f"{URL}/v1", HOME=str(FOLDER))
(FOLDER / "add.py").write_text("def add(a, b):\n    return a + b\n")
for request in REQUESTS:
    argv = (tool_path("aider"), *OPTIONS.split(), "--model", f"openai/{MODEL}", "--message", request, "add.py")
    output = run(*argv)
    tokens = re.search(r"Tokens: ([\d.]+)(k?) sent, ([\d.]+)k? received", output)
    if tokens is not None and float(tokens[3]):
        break
check("an answer", tokens is not None and float(tokens[3]) > 0, output[-2000:])
check("the file is in the prompt", tokens is not None and float(tokens[1]) * (1000 if tokens[2] else 1) > 100)
print_result("aider-chat")
