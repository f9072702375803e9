"""PaAno: anomaly scores for time series by patches, a small encoder and a memory bank."""
