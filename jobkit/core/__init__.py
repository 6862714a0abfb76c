"""The nouns and tools that the login node and the compute node share."""
