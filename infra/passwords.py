"""What is shown of an address."""

import re


def without_password(text: str) -> str:
    """Return `text` with the user and password of every URI in it masked."""
    return re.sub(r"://[^/\s]*@", "://***@", text)
