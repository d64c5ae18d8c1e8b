"""Stop strings, found in text that arrives in pieces.

Text that could be the beginning of a stop string is withheld until it is certain; the rest passes at once. The
result does not depend on how the text is cut into pieces: the stop string that is complete first ends the text, and
of several complete at the same character the longest. Where a stop string may have begun, each character costs a
constant amount for each of them (Knuth, Morris and Pratt 1977).
"""

from collections.abc import Sequence

from chairlift.core.errors import RequestError


class StopChecker:
    """Watches one sequence's text for its stop strings.

    Args:
        stop_strings: any number of them; none makes every piece pass as it is.
        include_stop_str_in_output: keep the stop string at the end of the text.

    Raises:
        RequestError: a stop string is empty.
    """

    def __init__(self, stop_strings: Sequence[str], *, include_stop_str_in_output: bool = False) -> None:
        if "" in stop_strings:
            raise RequestError("a stop string is empty; leave it out, or give at least one character")
        self._matchers = [_Matcher(stop) for stop in stop_strings]
        self._beginnings = {stop[0] for stop in stop_strings}
        self._include = include_stop_str_in_output
        self._withheld = ""
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop string that ended the text, once one has."""
        return self._matched

    def push(self, text: str, *, armed: bool = True) -> str:
        """Text that is safe to show.

        Args:
            text: what the detokenizer returned for a token.
            armed: False lets the text pass and forgets beginnings (while `min_tokens` holds, nothing stops).

        Returns:
            Earlier withheld text and this piece, up to the stop string or what may be the beginning of one. After
            a match nothing.
        """
        if self._matched is not None:
            return ""
        if not self._withheld and not any(character in text for character in self._beginnings):
            return text  # the usual case: nothing in this piece begins a stop string
        pending = self._withheld + text
        if not armed:
            return self._release(pending, withheld=0)
        for end, character in enumerate(text, start=len(self._withheld) + 1):
            complete = [matcher for matcher in self._matchers if matcher.feed(character)]
            if complete:
                stop = max((matcher.pattern for matcher in complete), key=len)
                self._matched = stop
                self._withheld = ""
                return pending[: end if self._include else end - len(stop)]
        return self._release(pending, withheld=max(matcher.length for matcher in self._matchers))

    def flush(self) -> str:
        """End the text: what was withheld was no stop string after all."""
        return self._release(self._withheld, withheld=0)

    def _release(self, pending: str, *, withheld: int) -> str:
        if not withheld:
            for matcher in self._matchers:
                matcher.length = 0
        keep_from = len(pending) - withheld
        self._withheld = pending[keep_from:]
        return pending[:keep_from]


class _Matcher:
    """One pattern, and how many of its characters the text's end matches."""

    __slots__ = ("_borders", "length", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.length = 0
        self._borders = _borders(pattern)

    def feed(self, character: str) -> bool:
        """Take one character; True when the pattern is complete."""
        pattern, length = self.pattern, self.length
        while length and pattern[length] != character:
            length = self._borders[length - 1]
        if pattern[length] == character:
            length += 1
        self.length = length
        return length == len(pattern)


def _borders(pattern: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(pattern)
    length = 0
    for end in range(1, len(pattern)):
        while length and pattern[end] != pattern[length]:
            length = borders[length - 1]
        if pattern[end] == pattern[length]:
            length += 1
        borders[end] = length
    return borders
