"""Commands that start, watch and change a run: sweep, status, logs, resume, cancel, throttle."""
