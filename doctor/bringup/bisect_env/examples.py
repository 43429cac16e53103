"""Templates of VARIABLES.yaml, printed by `bisect-env example`."""

from __future__ import annotations

EXAMPLE = """\
schema: zinc-rt-bisect-env/1
test: zinc-rt pm4-test -k P20        # fails on the bad machine and passes on the good one
test_minutes: 5                      # duration of one test, including the tester's work; a reboot adds 4
# flaky: {bad_passes: 0.1, good_fails: 0.0}   # omit if unknown: it is estimated from the runs
variables:
  kernel:                            # ordered values between good and bad: the first bad one is found too
    good: "6.12.57"
    bad: "7.0.4"
    values: ["6.12.57", "6.18.36", "7.0.4"]
    kind: kernel
    set: sudo grub-reboot 'Advanced options for Ubuntu>Ubuntu, with Linux {value}' && sudo reboot
    seen_in: /proc/version
  linux-firmware: {good: "20250613", bad: "20251111", kind: firmware, suspect: 2}
  mesa: {good: "25.0.7", bad: "25.2.1", kind: package}
  sched_policy: {good: "0", bad: "2", kind: parameter}
  iommu: {good: iommu=pt, bad: iommu=on, kind: cmdline}
  resizable BAR: {good: "on", bad: "off", kind: bios}
  runtime power: {good: "on", bad: auto, kind: power,
    set: "echo {value} | sudo tee /sys/bus/pci/devices/0000:03:00.0/power/control"}
"""
SPEED_EXAMPLE = """\
schema: zinc-rt-bisect-env/1
test: zinc-rt run --model model.gguf --prompt-file prompt.txt --json run.json
test_minutes: 2
measure:
  unit: tokens/s
  better: higher                     # lower for a time
  noise: 0.03                        # standard deviation of a run, as a share of its speed
  check: the answer equals answer.txt      # a run with wrong output does not count as fast or slow
variables:                           # ordered versions from the fast one to the slow one
  mesa:
    good: "25.0.7"
    bad: "25.3.0"
    values: ["25.0.7", "25.1.0", "25.1.4", "25.2.0", "25.2.1", "25.3.0"]
    kind: package
  kernel: {good: "6.12.57", bad: "6.18.36", values: ["6.12.57", "6.16.12", "6.18.36"], kind: kernel,
    seen_in: /proc/version}
"""
