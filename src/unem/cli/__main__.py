"""``python -m unem.cli``."""

from unem.cli import main

if __name__ == "__main__":
    main()
