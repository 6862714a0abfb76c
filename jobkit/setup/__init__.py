"""Before the first run: `jobkit doctor` looks, `jobkit init` writes."""
