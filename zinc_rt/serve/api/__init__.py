"""Endpoints for inference: OpenAI's, and those of llama.cpp and vLLM."""
