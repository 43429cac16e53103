"""SPIR-V as data: what a module holds, what the build adds to it, what may not be in it. Needs no driver."""
