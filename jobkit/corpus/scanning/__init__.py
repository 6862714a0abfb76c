"""Read a corpus once: its parts in several processes, text with numpy."""
