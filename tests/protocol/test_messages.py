"""The stubs of messages for type checkers: they are up to date and correct, and misspelt fields fail in the check."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from mypy import api as mypy

from rookery.protocol import messages
from rookery.protocol.api import DEFINED, SERVED, ApiKey
from rookery.protocol.codec import (
    FieldShape,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_shape,
    response_shape,
)
from rookery.protocol.message import FrozenMessage, Message, freeze
from rookery.protocol.messages import ApiVersion, MetadataRequest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "rookery"
STUBS = SOURCE / "protocol" / "messages"
HANDLERS = SOURCE / "broker" / "handlers"
API_KEYS = [*SERVED, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
# The handlers that read and write frames themselves.
WITHOUT_MESSAGES = {ApiKey.PRODUCE, ApiKey.FETCH}

PYTHON_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "bytes": bytes, "UUID": UUID}

RIGHT = """
from rookery.protocol.message import Request, ResponseT, freeze
from rookery.protocol.messages import CreateTopicsRequest, CreateTopicsResponse, MetadataRequest, MetadataResponseBroker


def answer(request: Request[ResponseT]) -> ResponseT:
    raise NotImplementedError


def handle(request: CreateTopicsRequest) -> CreateTopicsResponse:
    assert [len(topic.name) + topic.num_partitions for topic in request.topics]
    return CreateTopicsResponse(throttle_time_ms=0, topics=[])


def may_create(request: MetadataRequest) -> bool:
    return request.get("allow_auto_topic_creation", True)


def host(broker: MetadataResponseBroker) -> str:
    return freeze(broker).host
"""

# Lines with an error, each with mypy's message.
WRONG = {
    "request.topcs": '"CreateTopicsRequest" has no attribute "topcs"',
    "request.topics[0].nam": '"CreatableTopic" has no attribute "nam"',
    "request.topics[0].name + 1": "Unsupported operand types",
    "request.get('topics')": '"CreateTopicsRequest" has no attribute "get"',
    "CreateTopicsResponse(throttle_time_ms=0, topisc=[])": 'Unexpected keyword argument "topisc"',
    "CreateTopicsResponse(throttle_time_ms=0)": 'Missing named argument "topics"',
    "CreateTopicsResponse(throttle_time_ms='0', topics=[])": 'incompatible type "str"; expected "int"',
    "metadata.allow_auto_topic_creation": '"MetadataRequest" has no attribute "allow_auto_topic_creation"',
    "metadata.get('allow_auto_topic_creatoin')": "No overload variant",
    "metadata.get('topics')": "No overload variant",
    "len(metadata.topics)": 'has incompatible type "list[MetadataRequestTopic] | None"',
    "answer(metadata).topcis": '"MetadataResponse" has no attribute "topcis"',
    "freeze(CreateTopicsResponse(throttle_time_ms=0, topics=[])).topisc": 'has no attribute "topisc"',
}


def check(tmp_path: Path, text: str) -> list[str]:
    """Return the errors that mypy reports for a module, by line."""
    path = tmp_path / "snippet.py"
    path.write_text(text)
    output, problems, _ = mypy.run(["--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache"), str(path)])
    assert not problems, problems
    lines = output.splitlines()[:-1]
    return [line for line in lines if ": error: " in line]


def test_right_fields_pass_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    assert check(tmp_path, RIGHT) == []


def test_wrong_fields_fail_in_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    head = RIGHT + "\n\ndef read(request: CreateTopicsRequest, metadata: MetadataRequest) -> None:\n"
    first = len(head.splitlines()) + 1
    errors = check(tmp_path, head + "".join(f"    {line}\n" for line in WRONG))
    by_line = {int(error.split(":")[1]): error for error in errors}
    assert sorted(by_line) == list(range(first, first + len(WRONG))), errors
    for number, (line, expected) in enumerate(WRONG.items(), first):
        assert expected in by_line[number], line


def test_the_stubs_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "message_stubs.py"), "--check"]
    assert subprocess.run(command).returncode == 0, "run `make stubs`"


class StubClass(NamedTuple):
    """The annotations of a class: of its attributes, and of the results of `get`."""

    attributes: dict[str, str]
    partial: dict[str, str]


@cache
def stub_classes() -> dict[str, StubClass]:
    nodes = [node for path in STUBS.glob("*.pyi") for node in ast.parse(path.read_text()).body]
    return {node.name: _stub_class(node) for node in nodes if isinstance(node, ast.ClassDef)}


def _stub_class(node: ast.ClassDef) -> StubClass:
    attributes = {
        ast.unparse(each.target): ast.unparse(each.annotation) for each in node.body if isinstance(each, ast.AnnAssign)
    }
    partial: dict[str, str] = {}
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "get" and len(each.args.args) == 2:
            literal, returns = each.args.args[1].annotation, each.returns
            assert literal is not None
            assert returns is not None
            partial |= {
                str(name.value): ast.unparse(returns) for name in ast.walk(literal) if isinstance(name, ast.Constant)
            }
    return StubClass(attributes, partial)


@pytest.mark.parametrize("api_key", API_KEYS, ids=lambda key: key.name)
def test_decoded_messages_are_what_the_stubs_say(api_key: ApiKey) -> None:
    name = "".join(part.capitalize() for part in api_key.name.split("_"))
    for version in range(DEFINED[api_key].minimum, DEFINED[api_key].maximum + 1):
        encoded = encode_request(api_key, version, sample(request_shape(api_key, version)))
        assert_described(decode_request(api_key, version, encoded), f"{name}Request")
        encoded = encode_response(api_key, version, sample(response_shape(api_key, version)))
        assert_described(decode_response(api_key, version, encoded), f"{name}Response")


def sample(shape: Sequence[FieldShape]) -> Message:
    return Message(**{field.name: _sample_value(field) for field in shape})


def _sample_value(field: FieldShape) -> Any:
    if field.fields:
        value: Any = sample(field.fields)
    else:
        value = {"bool": True, "string": "a", "bytes": b"a", "records": b"a", "uuid": UUID(int=1)}.get(field.kind, 1)
    return [value] if field.is_array else value


def assert_described(message: Message, class_name: str) -> None:
    """Check that all fields belong to the class and have the annotated types, and that no attribute is missing."""
    described = stub_classes()[class_name]
    fields = vars(message)
    assert described.attributes.keys() <= fields.keys(), class_name
    annotations = described.attributes | described.partial
    assert fields.keys() <= annotations.keys(), class_name
    for name, value in fields.items():
        assert_typed(value, annotations[name].removesuffix(" | None"), f"{class_name}.{name}")


def assert_typed(value: Any, annotation: str, where: str) -> None:
    if annotation.startswith("list["):
        assert isinstance(value, list), where
        for item in value:
            assert_typed(item, annotation[len("list[") : -1], where)
    elif annotation in PYTHON_TYPES:
        assert type(value) is PYTHON_TYPES[annotation], where
    else:
        assert_described(value, annotation)


def test_at_run_time_each_class_is_a_plain_message() -> None:
    for name in stub_classes():
        assert getattr(messages, name) is Message, name
    with pytest.raises(AttributeError, match="no misspelt"):
        getattr(messages, "misspelt")  # noqa: B009 - type checkers reject the attribute
    assert vars(ApiVersion(api_key=3, min_version=0, max_version=13)) == {
        "api_key": 3,
        "min_version": 0,
        "max_version": 13,
    }


def test_frozen_messages_have_the_same_fields() -> None:
    request = MetadataRequest(topics=None)
    frozen = freeze(request)
    assert isinstance(frozen, FrozenMessage)
    assert vars(frozen) == vars(request)


def _handlers() -> Iterator[tuple[ApiKey, ast.Module]]:
    for path in sorted(HANDLERS.glob("k*.py")):
        yield ApiKey(int(path.name[1:3])), ast.parse(path.read_text())


def test_handlers_take_the_request_of_their_api_and_return_its_response() -> None:
    """Type checkers cannot see it: the table of handlers has functions of any request."""
    for api_key, module in _handlers():
        if api_key in WITHOUT_MESSAGES:
            continue
        name = "".join(part.capitalize() for part in api_key.name.split("_"))
        (handle,) = [
            node
            for node in module.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "handle"
        ]
        annotation, returns = handle.args.args[-1].annotation, handle.returns
        assert annotation is not None
        assert returns is not None
        response = f"{name}Response"
        assert ast.unparse(annotation) == f"{name}Request"
        assert ast.unparse(returns) in (response, f"{response} | Awaitable[{response}]")


def test_only_code_for_any_message_takes_untyped_ones() -> None:
    """In other code, a misspelt field would pass the check."""
    untyped = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "rookery.protocol.message":
                names = {alias.name for alias in node.names}
                untyped |= {str(path.relative_to(SOURCE))} if names & {"Message", "FrozenMessage"} else set()
    assert untyped == {
        "broker/access/guards.py",
        "broker/auditing.py",
        "broker/controller_link.py",
        "broker/dispatch.py",
        "broker/request_pieces.py",
        "protocol/codec.py",
        "protocol/error_responses.py",
        "protocol/response_errors.py",
        "testing/faults.py",
        "testing/injected_errors.py",
    }
