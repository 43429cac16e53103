"""Check lm-eval: a multiple-choice task by log-likelihoods of echoed prompts, and a generation, compared with the
server's.
"""

from __future__ import annotations

import json
import math

from check_kit import FOLDER, MODEL, TOKENIZER, URL, check, post, print_result, run, tool_path

QUESTIONS = [
    {
        "question": f"Question {number}: two and {number} is",
        "choices": [" one", " two", " three four"],
        "answer": 1,
    }
    for number in range(4)
]
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
CHOICE = """\
output_type: multiple_choice
doc_to_choice: "{{choices}}"
target_delimiter: ""
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
GENERATE = """\
output_type: generate_until
generation_kwargs: {until: ["###"], max_gen_toks: 6, temperature: 0}
doc_to_target: " one"
metric_list: [{metric: exact_match}]
"""

data = FOLDER / "questions.jsonl"
data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
for name, rest in (("choice", CHOICE), ("generate", GENERATE)):
    (FOLDER / f"{name}.yaml").write_text(TASK.format(name=f"zinc_{name}", data=data) + rest)
options = f"model={MODEL},base_url={URL}/v1/completions,tokenizer={TOKENIZER},tokenizer_backend=huggingface"
run(
    tool_path("lm_eval"), "run", "--model", "local-completions", "--model_args", f"{options},num_concurrent=4",
    "--include_path", str(FOLDER), "--tasks", "zinc_choice,zinc_generate", "--output_path", str(FOLDER / "out"),
    "--log_samples",
)  # fmt: skip
samples = {
    name: [json.loads(line) for path in FOLDER.glob(f"out/*/samples_zinc_{name}_*") for line in path.open()]
    for name in ("choice", "generate")
}
check("every question was asked", [len(item) for item in samples.values()] == [4, 4], samples)
for sample in samples["choice"]:
    question = sample["doc"]["question"]
    for choice, (likelihood, _) in zip(sample["doc"]["choices"], sample["filtered_resps"], strict=True):
        whole = post("/v1/completions", prompt=question + choice, max_tokens=1, echo=True, logprobs=1)
        known = len(post("/tokenize", content=question)["tokens"])
        wanted = sum(whole["choices"][0]["logprobs"]["token_logprobs"][known:-1])
        same = math.isclose(float(likelihood), wanted, rel_tol=1e-5) and wanted < -1
        check("a log-likelihood is the server's", same, (sample, wanted))
for sample in samples["generate"]:
    text = post("/v1/completions", prompt=sample["doc"]["question"], max_tokens=6, temperature=0, stop=["###"])
    check("an answer is the server's", sample["resps"][0][0] == text["choices"][0]["text"], sample)
print_result("lm-eval")
