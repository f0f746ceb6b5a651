"""`python -m marstts`: the command `marstts`."""

from marstts.cli.main import app

app(prog_name="marstts")
