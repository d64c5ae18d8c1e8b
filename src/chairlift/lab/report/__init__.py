"""Pictures and pages of runs, from their records alone.

sources     what a folder holds: a run of an engine, of a client, of both; a study
grid        who had which slot when, and what was computed in it: exact
cells       the grid as rectangles of a picture, each with its tokens
slots       the slot picture
charts      the other pictures, as Vega-Lite
figures     what is shown in tables
page        the page around them
"""
