"""A sensor's name made to act wherever it is shown."""

HOSTILE = "<img src=x onerror=document.title='hacked'>\"'&[/]\x1b[31m"
