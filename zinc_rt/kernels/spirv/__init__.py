"""Kernels of the set `spirv`: GLSL, and the SPIR-V that was built of it. docs/spirv.md says how one is written."""
