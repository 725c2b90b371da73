"""``python -m unem``, and the ``unem`` command."""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """The command line; Ctrl-C while it is being imported is a word and an exit code, too."""
    try:
        from unem.cli import main as run
    except BaseException as error:
        from unem.errors import interruption

        if interruption(error) is None:
            raise
        sys.stderr.write("interrupted\n")
        os._exit(130)  # half of the library is there: nothing of it is to be tidied up
    run()


if __name__ == "__main__":
    main()
