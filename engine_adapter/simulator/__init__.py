"""A simulated engine: vLLM V1's scheduling decisions, and a step that costs what a StepCost says."""
