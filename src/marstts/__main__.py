"""`python -m marstts`: the same door as the command `marstts`."""

from marstts.cli.main import app

app(prog_name="marstts")
