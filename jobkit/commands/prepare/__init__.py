"""Commands for before a run: init, doctor, preflight, lint, schema."""
