-- try_cast returns null for a value that is no number: records without a valid amount are skipped.
SELECT
  date(timestamp_millis(record.placed)) AS day,
  count(*) AS orders,
  sum(try_cast(record.amount AS decimal(10, 2))) AS amount
FROM (SELECT from_json(value, 'id bigint, amount string, placed bigint') AS record FROM raw)
WHERE try_cast(record.amount AS decimal(10, 2)) > 0
GROUP BY date(timestamp_millis(record.placed))
