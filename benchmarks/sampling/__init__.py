"""Sampling a rollout's tokens with our sampler behind its gateway, with generate, and with vLLM."""
