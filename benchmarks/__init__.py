"""How fast jobkit itself is: run by ``make bench``, told in docs/benchmarks.md."""
