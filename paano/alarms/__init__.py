"""Alarms: from scores to thresholds, events and their explanations.

- Where is the threshold computed, and the severity? `calibrate` (`Calibration.threshold`, `.severity`)
- How is it fitted to training scores? `fit_calibration`; are recent scores different? `drift`
- What is an event? `events`; when did its fault begin and end? `edges`; where is a long one cut? `cuts`
- What may a night change? `settle`
- Which channels and which part of the score made it? `explain`, `cause`
"""
