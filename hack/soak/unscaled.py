"""x."""

import random
from typing import Any


async def run(dice: random.Random) -> dict[str, Any]:
    raise NotImplementedError
