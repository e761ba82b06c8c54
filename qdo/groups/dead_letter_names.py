"""The names of the queues in which a group keeps its dead letters."""

from __future__ import annotations

from qdo.groups.names import is_new_queue_name
from queuey.errors import ConfigurationError

__all__ = ["DEFAULT_DEAD_LETTERS", "DeadLetterNames"]

DEFAULT_DEAD_LETTERS = "{queue}-dead"
"""As the server names them for its lease groups, if the name of the queue leaves room."""


class DeadLetterNames:
    """From the name of a queue to the name of the queue for its dead letters."""

    def __init__(self, template: str) -> None:
        """:param template: a name, in which ``{queue}`` stands for the queue that a message came from.
        :raises ConfigurationError: another word stands in braces, or no queue can have such a name.
        """
        if not isinstance(template, str):
            raise ConfigurationError(f"dead letters' queue {template!r}: expected a text")
        try:
            template.format(queue="q")
        except (KeyError, IndexError, ValueError) as error:
            raise ConfigurationError(f"dead letters' queue {template!r}: only {{queue}} may stand in braces") from error
        self._template = template
        self.queue_for("q")

    def name_for(self, queue: str) -> str:
        """The name, whether or not a queue may have it. ``queue`` may be a pattern."""
        return self._template.format(queue=queue)

    def queue_for(self, queue: str) -> str:
        """The name of a queue that can exist.

        :raises ConfigurationError: no queue can have this name.
        """
        name = self.name_for(queue)
        if not is_new_queue_name(name):
            raise ConfigurationError(
                f"the dead letters of queue {queue} cannot be kept in {name!r}: a name has 1 to 50 letters, digits, "
                "_ . -; name another queue with --dead-letters NAME"
            )
        return name

    def is_one(self, name: str) -> bool:
        """Whether a queue of this name is for dead letters."""
        before, _, after = self._template.partition("{queue}")
        if "{queue}" not in self._template:
            return name == self._template
        return name == self._template or (name.startswith(before) and name.endswith(after))
