"""Public test sets, and the one that needs no download: each module knows one layout on disk and makes trials of it."""
