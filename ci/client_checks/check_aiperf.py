"""Check aiperf: a concurrent load over streams, counted by the server's usage; aiperf also reads /metrics."""

from __future__ import annotations

import json

from check_kit import FOLDER, MODEL, TOKENIZER, URL, check, print_result, run, tool_path

REQUESTS, TOKENS = 12, 8

run(
    tool_path("aiperf"), "profile", "--ui", "none", "--model", MODEL, "--url", URL, "--endpoint-type", "chat",
    "--streaming", "--tokenizer", TOKENIZER, "--concurrency", "4", "--request-count", str(REQUESTS),
    "--synthetic-input-tokens-mean", "24", "--output-tokens-mean", str(TOKENS), "--use-server-token-count",
    "--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0.8",
    "--output-artifact-dir", str(FOLDER / "aiperf"),
)  # fmt: skip
report = json.loads((FOLDER / "aiperf" / "profile_export_aiperf.json").read_text())
check("every request ends well", report["request_count"]["avg"] == REQUESTS, report.get("error_summary"))
check("each has the tokens that were asked for", report["output_sequence_length"]["avg"] == TOKENS, report)
metrics = json.loads((FOLDER / "aiperf" / "server_metrics_export.json").read_text())
check("it reads the server's metrics", "vllm:generation_tokens" in json.dumps(metrics), sorted(metrics))
print_result("aiperf")
