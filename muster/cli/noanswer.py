"""What is asked in place of the admitter, or on the way to it, has no answer: exit status 3."""


class NoAnswer(Exception):
    """Says in a sentence who did not answer what."""
