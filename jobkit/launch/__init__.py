"""Everything that changes a run: submit, resubmit, cancel, run here."""
