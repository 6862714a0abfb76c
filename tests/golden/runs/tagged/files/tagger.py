"""Counts words; some of its settings fail, each in a way of its own."""

import time

COLUMNS = ["words", "beam"]


def load():
    return str.split


def tag(paragraphs, loaded, beam=1):
    if beam == 2:
        raise ValueError(f"beam {beam} is not trained")
    if beam == 3:
        held = [b"x" * (1 << 20) for _ in range(1000)]
        time.sleep(1 + len(held) * 0)
    if beam == 5:
        time.sleep(300)
    if any("boom" in text for text in paragraphs):
        raise ValueError("a paragraph with boom in it")
    time.sleep(0.02 + 0.001 * len(paragraphs))
    return [{"words": len(loaded(text)), "beam": beam} for text in paragraphs]
