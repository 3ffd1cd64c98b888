"""Reports: a finished corpus as numbers, as terminal text, and as one web page."""
