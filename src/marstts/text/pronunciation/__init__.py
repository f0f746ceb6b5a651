"""Pronunciations of words: a dictionary, a letter-to-sound model for the rest, and their use in sentences."""
