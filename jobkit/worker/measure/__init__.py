"""What one try measures: NVML, the sampler, memory by instrument, what a batch needs."""
