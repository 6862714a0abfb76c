"""The report as one HTML file: the page, its pictures, and the fragment that a notebook shows."""
