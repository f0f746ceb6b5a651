"""Training, data, preference tuning, evaluation and measurement of the models that `marstts` speaks with."""
