-- try_ functions: what is no order, or has no amount, has no part in the revenue.
SELECT
  date(timestamp_millis(record.placed)) AS day,
  count(*) AS orders,
  sum(try_cast(record.amount AS decimal(10, 2))) AS amount
FROM (SELECT from_json(value, 'id bigint, amount string, placed bigint') AS record FROM raw)
WHERE try_cast(record.amount AS decimal(10, 2)) > 0
GROUP BY date(timestamp_millis(record.placed))
