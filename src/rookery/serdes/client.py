"""A client for the REST API of a schema registry, Rookery's or Confluent's.

It has the requests that the serializers and the command line need. Methods block until the response arrives, and are
thread-safe. A schema with an id never changes, so `get_by_id` caches it; no other response is cached.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from rookery.base.errors import ConfigError
from rookery.serdes.caches import OnceCache
from rookery.serdes.entities import (
    Compatibility,
    CompatibilityJson,
    Config,
    ConfigJson,
    IdJson,
    ModeJson,
    RegisteredJson,
    RegisteredSchema,
    Schema,
    SchemaJson,
    SubjectVersion,
    SubjectVersionJson,
)
from rookery.serdes.errors import InvalidSchemaError, RegistryRequestError
from rookery.serdes.settings import RegistrySettings
from rookery.serdes.transport import NO_CODE, Request, Transport

VersionLike: TypeAlias = int | Literal["latest"]
_Response = TypeVar("_Response")
_OK = 200
_REFERENCES_DEPTH_MAX = 100


class RegistryClient:
    """`urls` is one url, several separated by commas, or a list; they may contain user and password. It may also be a
    mapping as for confluent-kafka's client: the urls under `url`, and further settings.

    `config` has Confluent's names: `basic.auth.user.info`, `ssl.ca.location` and so on. In the methods for config and
    mode, a subject of None means the global settings.
    """

    def __init__(self, urls: str | Sequence[str] | Mapping[str, object], config: Mapping[str, object] = {}) -> None:
        if isinstance(urls, Mapping):
            config = {**urls, **config}
            urls = _pop_urls(config)
        self._transport = Transport(urls, RegistrySettings.parse(config))
        self._by_id: OnceCache[int, Schema] = OnceCache(self._fetch_by_id)

    @property
    def urls(self) -> tuple[str, ...]:
        return self._transport.urls

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Register `schema` under `subject`. Returns its id, which is the existing one if it is registered already."""
        path = f"/subjects/{_quote(subject)}/versions"
        return self._post(path, schema, IdJson, _flags(normalize=normalize)).id

    def look_up(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Return the version of `subject` that has this schema."""
        path = f"/subjects/{_quote(subject)}"
        return self._post(path, schema, RegisteredJson, _flags(normalize=normalize, deleted=deleted)).to_registered()

    def get_by_id(self, schema_id: int) -> Schema:
        return self._by_id[schema_id]

    def get_version(self, subject: str, version: VersionLike = "latest", *, deleted: bool = False) -> RegisteredSchema:
        path = f"/subjects/{_quote(subject)}/versions/{version}"
        return self._get(path, RegisteredJson, _flags(deleted=deleted)).to_registered()

    def list_subjects(self, *, prefix: str = "", deleted: bool = False) -> list[str]:
        return self._get("/subjects", list[str], _prefix(prefix) | _flags(deleted=deleted))

    def list_versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        return self._get(f"/subjects/{_quote(subject)}/versions", list[int], _flags(deleted=deleted))

    def list_schemas(
        self, *, prefix: str = "", latest_only: bool = False, deleted: bool = False
    ) -> list[RegisteredSchema]:
        query = _prefix(prefix) | _flags(latestOnly=latest_only, deleted=deleted)
        found = self._get("/schemas", list[RegisteredJson], query)
        return [each.to_registered() for each in found]

    def subjects_of(self, schema_id: int, *, deleted: bool = False) -> list[str]:
        return self._get(f"/schemas/ids/{schema_id}/subjects", list[str], _flags(deleted=deleted))

    def versions_of(self, schema_id: int, *, deleted: bool = False) -> list[SubjectVersion]:
        found = self._get(f"/schemas/ids/{schema_id}/versions", list[SubjectVersionJson], _flags(deleted=deleted))
        return [SubjectVersion(each.subject, each.version) for each in found]

    def referenced_by(self, subject: str, version: VersionLike = "latest") -> list[int]:
        """Return the ids of the schemas that refer to this one."""
        return self._get(f"/subjects/{_quote(subject)}/versions/{version}/referencedby", list[int])

    def list_types(self) -> list[str]:
        return self._get("/schemas/types", list[str])

    def list_contexts(self) -> list[str]:
        return self._get("/contexts", list[str])

    def test_compatibility(
        self, subject: str, schema: Schema, *, version: VersionLike | None = None, normalize: bool = False
    ) -> Compatibility:
        """Check `schema` against one version, or against all versions that the subject's level requires."""
        path = f"/compatibility/subjects/{_quote(subject)}/versions" + (f"/{version}" if version is not None else "")
        found = self._post(path, schema, CompatibilityJson, _flags(normalize=normalize, verbose=True))
        return Compatibility(found.is_compatible, tuple(found.messages or ()))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject. Returns the deleted versions. It must be deleted before it can be deleted permanently."""
        return self._send("DELETE", f"/subjects/{_quote(subject)}", list[int], query=_flags(permanent=permanent))

    def delete_version(self, subject: str, version: VersionLike, *, permanent: bool = False) -> int:
        path = f"/subjects/{_quote(subject)}/versions/{version}"
        return self._send("DELETE", path, int, query=_flags(permanent=permanent))

    def get_config(self, subject: str | None = None, *, default_to_global: bool = False) -> Config:
        path = _subject_path("/config", subject)
        return self._get(path, ConfigJson, _flags(defaultToGlobal=default_to_global)).to_config()

    def put_config(
        self,
        level: str | None = None,
        *,
        subject: str | None = None,
        normalize: bool | None = None,
        policy: str | None = None,
    ) -> Config:
        """Set the arguments that are not None. `policy` is STRICT or LENIENT."""
        wanted = {"compatibility": level, "normalize": normalize, "compatibilityPolicy": policy}
        body = {name: value for name, value in wanted.items() if value is not None}
        return self._send("PUT", _subject_path("/config", subject), ConfigJson, body=body).to_config()

    def delete_config(self, subject: str | None = None) -> Config:
        """Reset the settings to their defaults. Returns the settings that were deleted."""
        return self._send("DELETE", _subject_path("/config", subject), ConfigJson).to_config()

    def get_mode(self, subject: str | None = None, *, default_to_global: bool = False) -> str:
        return self._get(_subject_path("/mode", subject), ModeJson, _flags(defaultToGlobal=default_to_global)).mode

    def put_mode(self, mode: str, *, subject: str | None = None, force: bool = False) -> str:
        path = _subject_path("/mode", subject)
        return self._send("PUT", path, ModeJson, query=_flags(force=force), body={"mode": mode}).mode

    def delete_mode(self, subject: str) -> str:
        return self._send("DELETE", _subject_path("/mode", subject), ModeJson).mode

    def resolve(self, schema: Schema) -> dict[str, str]:
        """Return the texts of all schemas that `schema` refers to, directly or not, by name; dependencies first."""
        resolved: dict[str, str] = {}
        self._resolve(schema, resolved, set(), _REFERENCES_DEPTH_MAX)
        return resolved

    def _resolve(self, schema: Schema, resolved: dict[str, str], seen: set[str], depth: int) -> None:
        if depth == 0:
            raise InvalidSchemaError("The references of the schema are nested too deeply")
        for reference in schema.references:
            if reference.name in seen:
                continue
            seen.add(reference.name)
            referred = self.get_version(reference.subject, reference.version, deleted=True).schema
            self._resolve(referred, resolved, seen, depth - 1)
            resolved[reference.name] = referred.text

    def _fetch_by_id(self, schema_id: int) -> Schema:
        return self._get(f"/schemas/ids/{schema_id}", SchemaJson).to_schema()

    def _get(self, path: str, answer: type[_Response], query: Mapping[str, str] = {}) -> _Response:
        return self._send("GET", path, answer, query=query)

    def _post(self, path: str, schema: Schema, answer: type[_Response], query: Mapping[str, str]) -> _Response:
        return self._send("POST", path, answer, query=query, body=SchemaJson.of(schema))

    def _send(
        self, method: str, path: str, answer: type[_Response], *, query: Mapping[str, str] = {}, body: Any = None
    ) -> _Response:
        encoded = None if body is None else msgspec.json.encode(body)
        received = self._transport.send(Request(method, path, query, encoded))
        try:
            return msgspec.json.decode(received, type=answer)
        except msgspec.DecodeError as error:
            message = f"the response to {method} {path} is not that of a schema registry: {error}"
            raise RegistryRequestError(_OK, NO_CODE, message) from error


def _pop_urls(config: dict[str, object]) -> str:
    urls = config.pop("url", "")
    if not isinstance(urls, str):
        raise ConfigError(f"url must be a text, not {type(urls).__name__}")
    return urls


def _quote(subject: str) -> str:
    """Encode a subject for a path. Subjects may contain any character, including slashes."""
    return quote(subject, safe="")


def _prefix(prefix: str) -> dict[str, str]:
    return {"subjectPrefix": prefix} if prefix else {}


def _flags(**flags: bool) -> dict[str, str]:
    """Return the query parameters for the flags that are set. The registry's default for all of them is false."""
    return {name: "true" for name, is_set in flags.items() if is_set}


def _subject_path(path: str, subject: str | None) -> str:
    return path if subject is None else f"{path}/{_quote(subject)}"
