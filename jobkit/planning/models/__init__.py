"""The model that a spec names: found on this machine, fetched beforehand, or built."""
