"""The corpus of ``jobkit apply``: read, cut into shards, and the rows of each shard exactly once."""
