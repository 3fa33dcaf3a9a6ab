"""Hold the wire baseline to a decision: the digest of proto/baseline.binpb must stand in a page of docs/decisions.

`buf breaking` compares proto/ with that image. Whoever replaces the image can break every peer in the field without the
tool noticing, so the new digest has to be written into a page that says why (0001-wire-baseline.md is the first).
"""

import hashlib
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def problem(root: pathlib.Path) -> str:
    """Return what is wrong with the baseline of a checkout, or an empty text."""
    digest = hashlib.sha256((root / "proto" / "baseline.binpb").read_bytes()).hexdigest()
    pages = (root / "docs" / "decisions").glob("[0-9]*.md")
    if any(digest in page.read_text() for page in pages):
        return ""
    return (
        f"proto/baseline.binpb (sha256 {digest}) is named by no page of docs/decisions: "
        "write one that says why the baseline changed, and give the digest there"
    )


def main() -> int:
    text = problem(ROOT)
    if text:
        print(text)
    return 1 if text else 0


if __name__ == "__main__":
    sys.exit(main())
