"""The `paano` command: `app.py` lists the commands, `console.py` has what they share."""
