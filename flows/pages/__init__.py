"""What people look at: pictures and pages, made from plain rows (`views.py`)."""
