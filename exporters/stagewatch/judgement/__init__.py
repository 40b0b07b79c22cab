"""The judgement: from the facts about a job's ranks to who is at fault, and why.

`facts` says what is known of a rank; `from_node` and `from_prometheus` gather it.  `judge` decides
from that alone, as far as a job hangs or has stopped and which rank is at fault.  Open `judge`
first.  `limits` has every threshold, `words` every sentence.
"""
