"""The example in docs/formats/metadata-log.md is what is really written."""

import asyncio
import re
from pathlib import Path
from uuid import UUID

from rookery.base.files import OsFiles
from rookery.metadata.image import EMPTY_IMAGE
from rookery.metadata.records import ConfigRecord, PartitionRecord, TopicRecord, encode_record
from rookery.metadata.snapshot import snapshot_values
from rookery.quorum.election_state import STATE_FILE
from rookery.storage.names import METADATA_PARTITION
from tests.quorum.sole import close, open_sole_voter

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "metadata-log.md"
TOPIC_ID = UUID("4a58b791-df6a-41d8-b03e-61cdc4bb86c3")
RECORDS = (
    TopicRecord("orders", TOPIC_ID),
    ConfigRecord(2, "orders", "retention.ms", "1000"),
    PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=(1,), isr=(1,), leader=1, directories=(UUID(int=0),)),
)


def example(number: int) -> bytes:
    """The bytes in a hex dump of the page."""
    dumps = re.findall(r"^```\n(0000  .*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} )*[0-9a-f]{2})", dumps[number], re.MULTILINE)
    return bytes.fromhex("".join(lines))


def test_the_example_is_true(tmp_path: Path) -> None:
    driver = open_sole_voter(OsFiles(), tmp_path)
    asyncio.run(driver.append([encode_record(record) for record in RECORDS]))
    close(driver)
    directory = tmp_path / str(METADATA_PARTITION)
    assert (directory / "00000000000000000000.log").read_bytes() == example(0)
    assert (directory / STATE_FILE).read_text() in PAGE.read_text()


def test_the_example_of_a_snapshot_is_true(tmp_path: Path) -> None:
    driver = open_sole_voter(OsFiles(), tmp_path)
    asyncio.run(driver.append([encode_record(record) for record in RECORDS]))
    image, _ = EMPTY_IMAGE.apply(RECORDS)
    asyncio.run(driver.take_snapshot(driver.next_offset, snapshot_values(image)))
    (path,) = (tmp_path / str(METADATA_PARTITION)).glob("*.checkpoint")
    assert path.read_bytes() == example(1)
    assert f"the file `{path.name}`" in PAGE.read_text()
