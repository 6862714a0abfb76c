"""From records to a line in the load, the largest batch, and the speed."""
