"""Tag a corpus: `jobkit apply` and `jobkit merge`. A run of this kind has shards as its points."""
