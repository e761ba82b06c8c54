"""The identity of callers, and their permissions. Deny by default."""
