"""A reader as a program of its own, for tests: what `muster-agent read` does without the command line."""

import os
import sys

from agent.reader import command, config
from muster import settings

if __name__ == "__main__":
    sys.exit(command.run(settings.load(config.ReaderConfig, config.PREFIX, {}, os.environ)))
