"""Words of a take: when each is said, which are missing or said twice, and how they are written."""
