"""The finding that explains a number that is still low: a rise waits for its second clean sample (faults.md P4).

After a fault the resource stays TRANSIENT for that one sample. Where only a pod has ended, it is a note on an OK.
"""

from agent.model.finding import Rule
from muster.model.report import Verdict
from muster.model.vocabulary import Reason, Remedy

RISE = Rule(
    id="P4",
    cause="UnconfirmedRise",
    verdict=Verdict.TRANSIENT,
    reason=Reason.UNCONFIRMED_RISE,
    remedy=Remedy.WAIT,
    clears_when="the next clean sample shows as many free units",
)

RULES = (RISE,)
