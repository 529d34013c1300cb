"""The content of the records: text that looks like JSON events, the same bytes for every system and round.

Zeros would compress too well, and random bytes not at all. This text has field names and short values from a small
vocabulary, and some random identifiers. In batches of 1 MB it shrinks to about a quarter with zstd and about a third
with lz4, which is common for logs and events.
"""

import random

_SEED = 7
_KEYS = ("city", "country", "customer", "device", "event", "page", "product", "referrer", "status", "team")
_WORDS = 300
_WORDS_PER_KEY = 60
_FIELDS_PER_IDENTIFIER = 3
# A lower bound for the size of one identifier and its fields, so that enough of them are created.
_GROUP_BYTES_MIN = 52


def event_text(size_bytes: int) -> bytes:
    """Return `size_bytes` bytes of text that does not repeat."""
    generator = random.Random(_SEED)
    fields = _vocabulary(generator)
    groups = size_bytes // _GROUP_BYTES_MIN + 1
    identifiers = generator.randbytes(4 * groups).hex()
    chosen = iter(generator.choices(fields, k=groups * _FIELDS_PER_IDENTIFIER))
    rows = zip(*[chosen] * _FIELDS_PER_IDENTIFIER, strict=True)
    parts = [f'"id":"{identifiers[index * 8 : index * 8 + 8]}",{"".join(row)}' for index, row in enumerate(rows)]
    return "".join(parts).encode()[:size_bytes]


def _vocabulary(generator: random.Random) -> list[str]:
    letters = ("bcdfghklmnprstvz", "aeiou", "lmnrst", "aeiou", "dkmnst")
    words = ["".join(generator.choice(choice) for choice in letters) for _ in range(_WORDS)]
    return [f'"{key}":"{word}",' for key in _KEYS for word in generator.sample(words, _WORDS_PER_KEY)]
