"""``python -m unem.cli``."""

from unem.cli import main

main()
