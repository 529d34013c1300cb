"""Compaction keeps the last record of each key: `policy` says when, `task` cleans one log, `cleaner` runs tasks."""
