"""`python -m localrun`."""

from localrun.cli.main import main

main()
