"""Validate a model from Python and print the results as a table.

python examples/harness_from_python.py
"""

from zinc_rt import harness

report = harness.validate("qwen3-q", tiers=["t_cpu"])  # or the path of a GGUF file
frame = report.to_frame()  # pandas: pip install 'zinc-rt[report]'
print(frame[["id", "status", "measure.max_abs", "limit.max_abs"]].to_string(index=False))
print(report.verdict()["status"])
