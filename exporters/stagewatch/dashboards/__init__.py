"""The library of the dashboards: their content is in `/dashboards`, their shape in here.

`/dashboards/NAME.dashboard.py` builds a board (`board.py`) out of panels (`panels.py`), whose
colours and value mappings (`look.py`) mean the same on all boards; `generate.py` writes each as
JSON in the shape that Grafana 11 and later keeps on disk.  Open `panels.py` first.
"""
