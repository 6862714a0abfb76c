"""The two YAML files that a person writes, spec and site, as validated frozen data."""
