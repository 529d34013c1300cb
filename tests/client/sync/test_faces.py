"""The asynchronous and the synchronous clients have the same methods, with the same parameters and results."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery import client
from rookery.client import sync
from rookery.client.admin import Admin
from rookery.client.consume.consumer import Consumer
from rookery.client.produce.producer import Producer

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PAIRS = [(Producer, sync.Producer), (Consumer, sync.Consumer), (Admin, sync.Admin)]
# An admin that shares a cluster's connections, which belong to one event loop.
ASYNCHRONOUS_ONLY = {(Admin, "over")}


def public(cls: type[Any]) -> dict[str, Any]:
    names = [name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))]
    return {name: inspect.getattr_static(cls, name) for name in names}


METHODS = [
    pytest.param(asynchronous, synchronous, name, id=f"{asynchronous.__name__}.{name}")
    for asynchronous, synchronous in PAIRS
    for name in [*public(asynchronous), "__init__"]
    if (asynchronous, name) not in ASYNCHRONOUS_ONLY
]


def written(annotation: object) -> str:
    """Return an annotation as text, so that the types of both clients can be compared."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:_asyncio|asyncio|concurrent|futures|_base|collections|abc|typing)\.", "", text)
    return text.replace("AsyncIterator", "Iterator").replace("AsyncGenerator", "Generator").strip("'\"")


@pytest.mark.parametrize(("asynchronous", "synchronous", "name"), METHODS)
def test_both_clients_have_the_same_method(asynchronous: type[Any], synchronous: type[Any], name: str) -> None:
    ours = inspect.signature(getattr(synchronous, name))
    theirs = inspect.signature(getattr(asynchronous, name))
    assert [(p.name, p.kind, p.default, written(p.annotation)) for p in ours.parameters.values()] == [
        (p.name, p.kind, p.default, written(p.annotation)) for p in theirs.parameters.values()
    ]
    assert written(ours.return_annotation) == written(theirs.return_annotation)
    assert not inspect.iscoroutinefunction(getattr(synchronous, name))
    assert not inspect.isasyncgenfunction(getattr(synchronous, name))


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_the_synchronous_client_has_no_other_methods(asynchronous: type[Any], synchronous: type[Any]) -> None:
    assert public(synchronous).keys() <= public(asynchronous).keys()
    assert {"__enter__", "__exit__"} <= set(dir(synchronous))


def test_the_generated_admin_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "sync_admin.py"), "--check"]
    assert subprocess.run(command).returncode == 0, "run scripts/sync_admin.py"


def test_both_packages_export_the_same_names() -> None:
    assert sorted(sync.__all__) == sorted(name for name in client.__all__ if name != "__getattr__")
