"""The `rookery` command."""

import sys

from rookery.cli.errors import failures_explained


def main() -> None:
    """A plain `rookery start` is ready in half the time without the description of all commands."""
    if sys.argv[1:2] == ["start"]:
        from rookery.cli.broker import plain_options, run_broker

        options = plain_options(sys.argv[2:])
        if options is not None:
            with failures_explained():
                run_broker(options)
            return
    from rookery.cli.commands import app

    app()


if __name__ == "__main__":
    main()
