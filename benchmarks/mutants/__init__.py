"""Twenty faults on purpose, and the tests that find them."""
