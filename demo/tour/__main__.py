"""`make tour`: runs the scenes one after the other against a broker in a temporary directory."""

import logging
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from demo.broker import Broker
from demo.tour.scenes import SCENES, SceneError

# Short intervals, so that the background work shows within seconds.
SETTINGS = (
    "log.cleaner.backoff.ms=200",
    "log.retention.check.interval.ms=200",
    "group.initial.rebalance.delay.ms=0",
)


def main() -> int:
    # The clients log warnings about rebalances, which are a part of the tour.
    logging.disable(logging.WARNING)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="rookery-tour-") as directory:
        broker = Broker(Path(directory), *SETTINGS)
        try:
            passed = play(broker, console)
        finally:
            broker.close()
        if not passed:
            console.print(f"[bold]The broker's log[/]\n{broker.log_path.read_text()[-5000:]}", highlight=False)
    console.print("[bold green]Every check passed.[/]" if passed else "[bold red]A check failed.[/]")
    return 0 if passed else 1


def play(broker: Broker, console: Console) -> bool:
    """Run scenes until one fails, since later ones depend on earlier ones; return whether all passed."""
    for scene in SCENES:
        title = scene.__doc__ or scene.__name__
        started = time.monotonic()
        try:
            with console.status(f"{title} ..."):
                result, passed = scene(broker), True
        except SceneError as error:
            result, passed = f"expected: {error}", False
        except Exception as error:
            result, passed = f"{type(error).__name__}: {error}", False
        mark = "[green]✓[/]" if passed else "[red]✗[/]"
        seconds = f"[dim]{time.monotonic() - started:.1f} s[/]"
        console.print(f"{mark} [bold]{title}[/] {seconds}\n  {result}", highlight=False, soft_wrap=True)
        if not passed:
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
