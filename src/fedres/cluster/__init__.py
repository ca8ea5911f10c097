"""Tables larger than memory: read in batches, dealt to shards of clients, solved shard by shard."""
