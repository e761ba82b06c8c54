"""Ways in. Each maps its own requests to the functions of :mod:`queuey.api`; neither has rules of its own."""
