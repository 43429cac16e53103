"""Inference endpoints: OpenAI's, llama.cpp's and vLLM's."""
