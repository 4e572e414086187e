"""``python -m pdcc`` is the command line."""

from pdcc.cli import main

main()
