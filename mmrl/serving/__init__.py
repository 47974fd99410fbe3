"""Models for others to ask: vLLM's own server around a checkpoint. Imports neither torch nor vllm."""
