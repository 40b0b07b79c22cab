"""Sections of boards that are too long for one file, a module for each subject.

The board keeps its guide, the figures of now, and the order in which the sections follow them.
"""
