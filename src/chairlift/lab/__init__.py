"""The lab: loads, measurements, comparisons and pictures, against any target."""
