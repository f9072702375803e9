"""Evaluation: how good is a detector, with labels and without.

- Which measures? `metrics`; on which benchmark files, by which rules? `protocol`; against what? `baselines`
- Which faults are put into normal data to test a model without labels? `inject`
- Where does the made-up fleet of the demo come from? `synth`
"""
