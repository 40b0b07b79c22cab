"""Runs the scenarios of the demo and writes what was measured beside what their sources say."""
