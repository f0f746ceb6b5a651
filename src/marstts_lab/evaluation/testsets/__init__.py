"""Test sets by name: each module reads one layout on disk and makes trials of it."""
