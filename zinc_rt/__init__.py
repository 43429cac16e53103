"""ZINC_RT: from a GGUF file to the GPU's command processor, and the tools to trust every step between."""

__version__ = "0.1.0"
