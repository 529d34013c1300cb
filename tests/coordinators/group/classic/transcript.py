"""Scenarios of classic groups as text: the requests of all members, and their responses.

A line that begins with `>` is an event; the lines below it are all responses that it causes. A line that begins with
`#` is a comment. The group's id is `g`. A member is named by its client id, and uses the newest member id and
generation that it has received; `fresh` joins without a member id.

    > NAME joins [fresh] [v=N] [instance=I] [session=MS] [rebalance=MS] [type=T] PROTOCOL:METADATA ...
    > NAME syncs [gen=N] [protocol=P] [MEMBER=ASSIGNMENT ...]
    > NAME beats [gen=N] [instance=I]
    > NAME leaves [instance=I]           > instance I is removed
    > NAME commits TOPIC-PARTITION=OFFSET ... [gen=N] [id=MEMBER] [v=N]
    > offsets TOPIC-PARTITION ...        > offsets of TOPIC-PARTITION ... are deleted
    > N ms pass      > restart      > the log fails      > the log works
    > show           > delete       > list
"""

from pathlib import Path
from typing import Any

from rookery.base.errors import ErrorCode
from rookery.base.types import TopicPartition
from rookery.coordinators.group.classic.group import ClassicGroup
from rookery.coordinators.group.classic.results import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from rookery.coordinators.group.offsets.commit import CommitRequest, FetchRequest, OffsetToCommit
from rookery.coordinators.group.settings import GroupSettings
from rookery.coordinators.result import PARKED, Token
from tests.coordinators.group.stage import Stage

GROUP_ID = "g"


def check(path: Path) -> None:
    """Run a scenario and compare its responses; the first line may have settings (`settings: name=value ...`)."""
    lines = path.read_text().splitlines()
    settings = {}
    if lines[0].startswith("settings:"):
        settings = {name: int(value) for name, value in _pairs(lines[0].split()[1:])}
    player = Player(Stage(GroupSettings(**settings)))
    played = lines[: 1 if settings else 0]
    for line in lines[len(played) :]:
        if line.startswith(">"):
            played += [line, *player.play(line[1:].split())]
        elif not line.strip() or line.startswith("#"):
            played.append(line)
    assert played == lines


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return [(word.split("=", 1)[0], word.split("=", 1)[1]) for word in words]


class Player:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._requests: dict[Token, str] = {}

    def play(self, words: list[str]) -> list[str]:
        responses: list[str] = []
        match words:
            case [number, "ms", "pass"]:
                self._stage.pass_time(int(number))
            case ["restart"]:
                self._stage.restart()
            case ["the", "log", state]:
                self._stage.log_works = state == "works"
            case [("show" | "delete" | "list") as verb]:
                responses = getattr(self, f"_{verb}")()
            case ["offsets", "of", *names, "are", "deleted"]:
                responses = self._delete_offsets(names)
            case ["offsets", *names]:
                responses = self._offsets(names)
            case ["instance", instance, "is", "removed"]:
                responses = self._leave("admin", {"instance": instance}, "")
            case [name, "joins", *rest]:
                responses = self._join(name, rest)
            case [name, "syncs", *rest]:
                responses = self._sync(name, dict(_pairs(rest)))
            case [name, "beats", *rest]:
                responses = self._beat(name, dict(_pairs(rest)))
            case [name, "leaves", *rest]:
                responses = self._leave(name, dict(_pairs(rest)), self._ids.get(name, ""))
            case [name, "commits", *rest]:
                responses = self._commit(name, dict(_pairs(rest)))
            case _:
                raise AssertionError(f"unknown event: {words}")
        later = [self._format(self._requests[token], result) for token, result in self._stage.take_responses()]
        return [line for line in responses + later if line]

    def _join(self, name: str, words: list[str]) -> list[str]:
        if "fresh" in words:
            self._ids.pop(name, None)
        options = dict(_pairs([word for word in words if "=" in word]))
        version = int(options.get("v", "9"))
        request = JoinRequest(
            group_id=GROUP_ID,
            member_id=options.get("id", self._ids.get(name, "")),
            instance_id=options.get("instance"),
            client_id=name,
            client_host="/127.0.0.1",
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            protocol_type=options.get("type", "consumer"),
            protocols=tuple(
                (word.split(":")[0], word.split(":")[1].encode()) for word in words if ":" in word and "=" not in word
            ),
            needs_member_id=version >= 4,
            can_skip_assignment=version >= 9,
        )
        return self._send(name, lambda shard, token, now_ms: shard.join(request, token, now_ms))

    def _sync(self, name: str, options: dict[str, str]) -> list[str]:
        generation = int(options.pop("gen", self._generations.get(name, -1)))
        protocol, instance = options.pop("protocol", None), options.pop("instance", None)
        request = SyncRequest(
            group_id=GROUP_ID,
            member_id=self._ids.get(name, ""),
            instance_id=instance,
            generation=generation,
            protocol_name=protocol,
            assignments=tuple((self._ids.get(member, member), work.encode()) for member, work in options.items()),
        )
        return self._send(name, lambda shard, token, now_ms: shard.sync(request, token, now_ms))

    def _send(self, name: str, decide: Any) -> list[str]:
        token = self._stage.new_token()
        self._requests[token] = name
        response = self._stage.run(lambda shard, now_ms: decide(shard, token, now_ms), token)
        if response is PARKED:
            return [f"{name} waits"] if self._stage.is_waiting(token) else []
        return [self._format(name, response)]

    def _beat(self, name: str, options: dict[str, str]) -> list[str]:
        request = HeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self._ids.get(name, ""),
            instance_id=options.get("instance"),
            generation=int(options.get("gen", self._generations.get(name, -1))),
        )
        code = self._stage.run(lambda shard, now_ms: shard.heartbeat(request, now_ms))
        return [f"{name}: {code.name}"]

    def _leave(self, name: str, options: dict[str, str], member_id: str) -> list[str]:
        leaving = [LeavingMember(member_id, options.get("instance"))]
        result = self._stage.run(lambda shard, now_ms: shard.leave(GROUP_ID, leaving, now_ms))
        code = result if isinstance(result, ErrorCode) else result.members[0].error_code
        return [f"{name}: {code.name}"]

    def _commit(self, name: str, options: dict[str, str]) -> list[str]:
        request = CommitRequest(
            group_id=GROUP_ID,
            generation=int(options.pop("gen", self._generations.get(name, -1))),
            member_id=options.pop("id", self._ids.get(name, "")),
            instance_id=options.pop("instance", None),
            api_version=int(options.pop("v", "10")),
            offsets=tuple(OffsetToCommit(_partition(partition), int(offset)) for partition, offset in options.items()),
        )
        results = self._stage.run(lambda shard, now_ms: shard.commit(request, now_ms))
        if isinstance(results, ErrorCode):
            return [f"{name}: {results.name}"]
        return [f"{name}: " + " ".join(f"{item.partition} {item.error_code.name}" for item in results)]

    def _offsets(self, names: list[str]) -> list[str]:
        partitions = tuple(map(_partition, names)) if names else None
        found = self._stage.shard.fetch(FetchRequest(group_id=GROUP_ID, partitions=partitions))
        return ["offsets: " + " ".join(f"{item.partition}={item.offset}" for item in found.offsets)]

    def _delete_offsets(self, names: list[str]) -> list[str]:
        partitions = tuple(map(_partition, names))
        results = self._stage.run(lambda shard, _: shard.delete_offsets(GROUP_ID, partitions))
        if isinstance(results, ErrorCode):
            return [results.name]
        return [f"{item.partition}: {item.error_code.name}" for item in results]

    def _delete(self) -> list[str]:
        code = self._stage.run(lambda shard, _: shard.delete(GROUP_ID))
        return [f"deleted: {code.name}"]

    def _list(self) -> list[str]:
        return [f"{group.group_id}: {group.type} {group.state}" for group in self._stage.shard.list()]

    def _show(self) -> list[str]:
        group = self._stage.shard.groups.get(GROUP_ID)
        if group is None:
            return ["no group"]
        assert isinstance(group, ClassicGroup)
        head = f"{group.state.value} generation {group.generation}"
        members = " ".join(f"{member.member_id}={member.assignment.decode()}" for member in group.members.values())
        pending = f"; pending {' '.join(group.pending_joins)}" if group.pending_joins else ""
        return [f"{head}; leader {group.leader_id}; members {members or 'none'}{pending}"]

    def _format(self, name: str, result: Any) -> str:
        if isinstance(result, ErrorCode):
            return f"{name}: {result.name}"
        if isinstance(result, JoinResult):
            return self._format_joined(name, result)
        assert isinstance(result, SyncResult)
        if result.error_code is not ErrorCode.NONE:
            return f"{name}: {result.error_code.name}"
        return f"{name}: assigned {result.assignment.decode() or 'nothing'}"

    def _format_joined(self, name: str, result: JoinResult) -> str:
        if result.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self._ids[name] = result.member_id
            return f"{name}: MEMBER_ID_REQUIRED {result.member_id}"
        if result.error_code is not ErrorCode.NONE:
            return f"{name}: {result.error_code.name}"
        self._ids[name], self._generations[name] = result.member_id, result.generation
        line = f"{name}: joined as {result.member_id} generation {result.generation} {result.protocol_name}"
        line += f" leader {result.leader}"
        if result.members:
            line += " of " + " ".join(f"{item.member_id}:{item.metadata.decode()}" for item in result.members)
        return line + (" skip assignment" if result.skip_assignment else "")


def _partition(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))
