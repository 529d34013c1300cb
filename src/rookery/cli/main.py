"""The entry point of the `rookery` command."""

import sys

from rookery.cli.errors import failures_explained


def main() -> None:
    """Run the command line. `start` and `up` with plain options bypass typer, which halves their start-up time."""
    match sys.argv[1:]:
        case ["start", *arguments]:
            from rookery.cli.broker import plain_options, run_broker

            options = plain_options(arguments)
            if options is not None:
                with failures_explained():
                    run_broker(options)
                return
        case ["up", *arguments]:
            from rookery.cli.platform import plain_up_options, run_platform

            up_options = plain_up_options(arguments)
            if up_options is not None:
                with failures_explained():
                    run_platform(up_options)
                return
    from rookery.cli.commands import app

    app()


if __name__ == "__main__":
    main()
