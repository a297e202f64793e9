"""``bench shard``: fully sharded training by the clock."""
