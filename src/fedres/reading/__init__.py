"""Reading tables: files of every kind, in memory and in batches."""
