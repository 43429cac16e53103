"""Check guidellm: a concurrent load over streams; every request completes with the requested number of tokens."""

from __future__ import annotations

import json

from check_kit import FOLDER, MODEL, TOKENIZER, URL, check, print_result, run, tool_path

REQUESTS, TOKENS = 12, 8

report = FOLDER / "guidellm.json"
run(
    tool_path("guidellm"), "run", "--disable-progress",
    "--backend", f"kind=openai_http,target={URL},model={MODEL}",
    "--profile", "kind=concurrent,streams=4",
    "--constraint", f"kind=max_requests,count={REQUESTS}",
    "--tokenizer", f"kind=hf_auto,model={TOKENIZER}",
    "--data", f"kind=synthetic_text,prompt_tokens=24,output_tokens={TOKENS}",
    "--output", f"kind=json,path={report}",
)  # fmt: skip
(benchmark,) = json.loads(report.read_text())["benchmarks"]
requests = benchmark["requests"]
counts = {kind: len(requests[kind]) for kind in ("successful", "errored", "incomplete")}
check("every request ends well", counts == {"successful": REQUESTS, "errored": 0, "incomplete": 0}, counts)
made = {item["output_metrics"]["text_tokens"] for item in requests["successful"]}
check("each has the tokens that were asked for", made == {TOKENS}, made)
print_result("guidellm")
