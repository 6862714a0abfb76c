"""Apply a measured setting to a whole corpus: the setting, the shards, the run folder, and plan again."""
