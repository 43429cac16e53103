"""The kernels of the set `spirv`: GLSL source and the SPIR-V built from it. docs/spirv.md describes how to
write one."""
