"""SPIR-V modules as data: parsing, the build's modifications, and lint rules. Needs no driver."""
