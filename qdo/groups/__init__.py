"""Consumer groups: their members, their partitions, and how far they are."""
