"""What the warmer knows of a node that lists more than anybody can be told."""

import pytest

from agent.model.warm import Image, ImageRecord, StoreFacts
from agent.warmer.config import WarmerConfig
from agent.warmer.estate import MAX_LOOKED, Estate
from muster.model.warmth import MAX_IMAGES
from tests.agent.core.test_warmreport import digest, image


class Survey:
    """Every image has its number as its digest."""

    def __init__(self):
        self.looks = 0

    async def image(self, root, facts):
        self.looks += 1
        return image(int(root.digest[7:], 16))


@pytest.mark.parametrize("count", [10, 10_000])
async def test_a_look_reads_no_more_images_than_are_told(count):
    survey = Survey()
    known = Estate(WarmerConfig(), survey, None, monotonic=lambda: 0.0, jitter=lambda: 0.0)
    names = {f"r.io/b{number}:1": ImageRecord(digest=digest(number)) for number in range(count)}
    names |= {f"sha256:{number}": ImageRecord(digest=digest(number)) for number in range(count)}
    found = await known.others(StoreFacts(records=names))
    assert len(found) == survey.looks == min(count, MAX_LOOKED)
    assert MAX_LOOKED > 2 * MAX_IMAGES
    assert all(isinstance(each, Image) for each in found.values())
