"""Everything that changes a run: submit, resubmit, cancel, throttle, run here."""
