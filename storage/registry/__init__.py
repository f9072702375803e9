"""Models kept in MLflow: `registry.py` is the face, `client.py` its calls, `versions.py` what a version says
of itself, `cache.py` the local copies, `package.py` and `pyfunc.py` what makes a version an MLflow model.
"""
