"""Text from elsewhere - names in records, paths, messages - before anybody is shown it."""

from __future__ import annotations


def visible(text: object, keep: str = "") -> str:
    r"""The text with everything that cannot be seen (but for what to `keep`) as an escape: \x1b, \n, \u202e.

    A terminal would act upon such a character, and a reader would not know that it is there.
    """
    told = str(text)
    if told.isprintable():
        return told
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in told)
