"""Commands before a run: init, doctor, preflight, lint, schema, help."""
