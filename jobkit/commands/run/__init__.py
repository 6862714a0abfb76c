"""Commands for a run that goes on: sweep, status, logs, resume, cancel, throttle."""
