"""The networks and their training.

- What do the networks look like? `encoder`; what is minimised? `losses`; what is the training loop? `train`
- How does training run fast on a CPU? `blocked`; on a GPU, several models at once? `fused`, `together`
"""
