"""What is kept and where: objects, history, tables of scores and events, the model registry.

Imports paano, never flows. Only here are s3fs and MLflow imported.
"""
