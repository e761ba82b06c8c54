"""Who is calling, and what they may do. Deny by default."""
