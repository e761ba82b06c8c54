"""Consumer groups: their members, which partitions each has, and how far they got."""
