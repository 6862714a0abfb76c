"""How fast jobkit itself is: run by ``make bench``, shown in docs/measurements.md."""
