"""The SQS door: what Amazon's clients speak, JSON 1.0 and Query, on the queues of this server."""
