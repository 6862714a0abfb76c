"""The worker: what runs on the compute node, and nothing it does not need."""
