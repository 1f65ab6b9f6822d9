"""`python -m understudy`."""

from .cli import main

main()
