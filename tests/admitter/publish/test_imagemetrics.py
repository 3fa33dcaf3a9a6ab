"""What the page shows of hints and questions, and the docs that list it."""

import pathlib
import re

from admitter.core.hints import Hints
from admitter.model.content import Answer, Credential, Question, WarmImage, WarmList
from admitter.publish.imagemetrics import ImageFigures

DOCS = pathlib.Path(__file__).parents[3] / "docs"
SECRET = Credential(username="u", password="s3cret")


def figures():
    made = ImageFigures()
    images = {"n1": (WarmImage(reference="a"), WarmImage(reference="b")), "n2": (WarmImage(reference="a"),)}
    made.hints = Hints(images=images, refused={("n3", "team-a", "a"): "it is over budget"})
    reasons = ("", "NotFound", "NotFound", "what a node makes up")
    made.heard(Answer(id=1, digest="", reason=reason, detail="", bytes_total=0) for reason in reasons)
    question = Question(id=1, reference="a", credential=SECRET)
    made.sent(WarmList(term=1, images=(WarmImage(reference="a", credential=SECRET),), questions=(question,)))
    made.sent(WarmList(term=1, images=(WarmImage(reference="a"),)))
    return made


def test_the_page_shows_hints_answers_and_secrets():
    samples = [sample for family in figures().collect() for sample in family.samples]
    shown = {(sample.name, sample.labels.get("reason", "")): sample.value for sample in samples}
    assert shown["muster_admitter_hinted_nodes", ""] == 2
    assert shown["muster_admitter_hints", ""] == 3
    assert shown["muster_admitter_refused_hints", ""] == 1
    assert shown["muster_admitter_pull_secrets_sent_total", ""] == 2
    answers = {reason: value for (name, reason), value in shown.items() if value and name.endswith("answers_total")}
    assert answers == {"Resolved": 1, "NotFound": 2, "other": 1}
    assert SECRET.password not in str(samples)


def test_every_metric_and_label_is_in_the_docs():
    shown = {}
    for family in figures().collect():
        labels = {label for sample in family.samples for label in sample.labels}
        name = family.name + ("_total" if family.type == "counter" else "")
        shown[name] = (family.type, ", ".join(sorted(labels)))
    rows = re.findall(r"^\| `(muster_\w+)` \| (\w+) \| ([^|]*) \|", (DOCS / "images.md").read_text(), re.MULTILINE)
    assert {name: (kind, labels.strip().replace("`", "")) for name, kind, labels in rows} == shown
